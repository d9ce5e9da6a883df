"""Observing targets: a blocking query each, or one for many.

A server limits the number of connections from one machine. So only the first few observations have
one each. The others share queries that report whether anything has changed near them: one for each
of the first namespaces, groups and services, then one for all of a kind. This client's own members
have none: their records are read once they are watched, then together whenever the session is
renewed, and the record of one that this client releases is read right after that.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial

from kip30.driver.kit.batch_queue import BatchQueue
from kip30.driver.kit.gate import CLOSED
from kip30.driver.kit.thread_start import join_others
from kip30.driver.kit.watch import Sink
from kip30.driver.records import Kind, Target
from kip30.errors import ClosedError, Kip30Error, UnavailableError
from kip30_backends.consul.blocking_query import (
    AnswerCallback,
    BlockingQuery,
    ConsulWatch,
    QueryConnection,
    QueryWait,
    SharedPoll,
    look,
)
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.client.operation_requests import OperationRequests, understood
from kip30_backends.consul.observation_order import OrderMark
from kip30_backends.consul.target_states import TargetKeys, TargetStates
from kip30_backends.consul.transactions import MAX_OPS, says_nothing_is_there
from kip30_backends.consul.transactions import target as request_target

_log = logging.getLogger(__name__)

# Each holds a connection, of which a server takes 200 from one address by default
# (`limits.http_max_conns_per_client`), for all clients on one machine together.
_MOST_ALONE = 4
_MOST_NEAR = 2


class SharedQuery:
    """The signal of a change below *prefix*, and the watches that wait for it."""

    def __init__(self, prefix: str) -> None:
        """Start without watches."""
        self.prefix = prefix
        # Both are written under the lock of `Watches`. The query ends with the last watch.
        self.watches: set[ConsulWatch] = set()
        self.query: BlockingQuery | None = None

    @property
    def url(self) -> str:
        """The URL to request: its answer is short, however many keys there are."""
        return request_target(self.prefix, "&keys&separator=/")


class Watches:
    """All watches of one backend. Thread-safe."""

    def __init__(
        self,
        states: TargetStates,
        calls: Calls,
        query_wait: QueryWait,
        *,
        is_own: Callable[[str], bool],
    ) -> None:
        """Read from *states*; *is_own* says whether this client's session holds a key."""
        self._states = states
        self._calls = calls
        self._query_wait = query_wait
        self._is_own = is_own
        # All of these are written under the lock. A watch is in one of the first, third, fourth.
        # Watches with a query of their own.
        self._alone: dict[ConsulWatch, BlockingQuery] = {}
        # The shared queries by prefix, and the one that each other watch waits for.
        self._shared: dict[str, SharedQuery] = {}
        self._sharing: dict[ConsulWatch, SharedQuery] = {}
        # Watches of this client's members, which are read together when the session is renewed.
        self._members: set[ConsulWatch] = set()
        # Those of them that were not read yet, for which a renewal may be long in coming.
        self._new_members: BatchQueue[ConsulWatch] = BatchQueue(most=MAX_OPS, under_way=1)
        # Whether a read of all members is under way; its thread alone resets it.
        self._reads_members = False
        # The threads of all queries that may still run, for `join`.
        self._threads: set[threading.Thread] = set()
        self._stopped = False
        self._lock = threading.Lock()
        calls.endpoints.on_move = self._move

    def add(self, target: Target, sink: Sink) -> ConsulWatch:
        """Notify *sink* of *target* from now on.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
            UnavailableError: No thread can be started.
        """
        self._calls.gate.check()
        place = self._states.place(target)
        watch = ConsulWatch(place, self._states.mark(place).place_order, sink, self._forget)
        if target.kind is Kind.MEMBER and self._is_own(place.key):
            self._add_member(watch)
        else:
            self._add_followed(watch)
        return watch

    def _add_member(self, watch: ConsulWatch) -> None:
        with self._lock:
            if self._stopped:
                raise ClosedError(CLOSED)
            self._members.add(watch)
        if not self._new_members.add(watch):
            return
        try:
            self._calls.pool.do(self._read_new_members)
        except Kip30Error as error:
            while self._new_members.take():
                pass  # the next renewal reads them
            _log.info("new members are not read: %s", str(error))

    def _read_new_members(self) -> None:
        while watches := self._new_members.take():
            self._read_own(watches)

    def _add_followed(self, watch: ConsulWatch) -> None:
        with self._lock:
            if self._stopped:
                raise ClosedError(CLOSED)
            if len(self._alone) < _MOST_ALONE:
                self._alone[watch] = self._follow_alone(watch)
                return
            query = self._share(watch)
        requests = self._calls.requests(self._calls.seconds)
        try:
            self._calls.pool.do(partial(self._read_first, watch, query, requests))
        except Kip30Error:
            query.notify_again()

    def read_members(self) -> None:
        """Start a read of all watched members of its own, unless one is under way."""
        with self._lock:
            if self._stopped or self._reads_members or not self._members:
                return
            self._reads_members = True
        try:
            self._calls.pool.do(self._read_members)
        except Kip30Error as error:
            self._reads_members = False
            _log.info("own members are not read: %s", str(error))

    def _read_members(self) -> None:
        with self._lock:
            watches = list(self._members)
        try:
            self._read_own(watches)
        finally:
            self._reads_members = False

    def read_released(self, keys: AbstractSet[str]) -> None:
        """Start a read of members that this client watched as its own, and has released.

        Another caller in the same client may wait in a line for that.
        """
        with self._lock:
            watches = [watch for watch in self._members if watch.place.key in keys]
        if watches:
            try:
                self._calls.pool.do(partial(self._read_own, watches))
            except Kip30Error as error:
                _log.info("released members are not read: %s", str(error))

    def _read_own(self, watches: Sequence[ConsulWatch]) -> None:
        try:
            SharedPoll(self._states, self._calls).read(watches)
        except Kip30Error as error:
            _log.info("own members will be read again: %s", str(error))
        except Exception:  # noqa: BLE001  otherwise no new member would be read any more
            _log.exception("own members will be read again")

    def _share(self, watch: ConsulWatch) -> BlockingQuery:
        """Read *watch* whenever the nearest shared query returns."""
        prefix = self._nearest(watch.place)
        shared = self._shared.get(prefix) or SharedQuery(prefix)
        if shared.query is None:
            shared.query = self._follow(shared.url, lambda: partial(self._read_shared, shared))
            self._shared[prefix] = shared
        shared.watches.add(watch)
        self._sharing[watch] = shared
        return shared.query

    def _nearest(self, place: TargetKeys) -> str:
        near = self._states.near(place)
        is_full = len(self._shared) >= _MOST_NEAR
        far = self._states.all_of(place.target.kind)
        return near if near in self._shared or not is_full else far

    def stop(self) -> None:
        """Close all watches, and accept no more."""
        with self._lock:
            self._stopped = True
            watches = [*self._alone, *self._sharing, *self._members]
        for watch in watches:
            watch.close()

    def join(self) -> None:
        """Wait until all threads have ended, unless called on one of them."""
        join_others(*self._threads)

    def _follow_alone(self, watch: ConsulWatch) -> BlockingQuery:
        return self._follow(watch.place.url, partial(self._callback_of, watch))

    def _follow(self, url: str, callback_of: Callable[[], AnswerCallback]) -> BlockingQuery:
        query = BlockingQuery(
            QueryConnection(self._calls.endpoints), url, self._query_wait, callback_of
        )
        try:
            query.thread.start()
        except RuntimeError as error:
            raise UnavailableError(f"no thread to spare for the watch: {error}") from error
        except BaseException:  # an interrupt of the caller: the thread may run, and be lost
            query.close()
            raise
        self._threads = {query.thread, *filter(threading.Thread.is_alive, self._threads)}
        return query

    def _callback_of(self, watch: ConsulWatch) -> AnswerCallback:
        return partial(self._tell, watch, self._states.mark(watch.place))

    def _tell(self, watch: ConsulWatch, sent: OrderMark, answer: Answer) -> None:
        index, content = understood(answer, watch.understand)
        watch.tell(self._states.order(index, sent), content)

    def _read_first(
        self, watch: ConsulWatch, query: BlockingQuery, requests: OperationRequests
    ) -> None:
        try:
            look(watch, self._states, requests)
        except Kip30Error as error:
            _log.info("retrying watch of %s after: %s", watch.place.target, error)
            query.notify_again()

    def _read_shared(self, shared: SharedQuery, answer: Answer) -> None:
        """Read what shares *shared*, except known absent targets that cannot have appeared.

        Consul wakes a query about a prefix that no key has at any write to the store.
        """
        with self._lock:
            watches = list(shared.watches)
        if says_nothing_is_there(answer):
            watches = [watch for watch in watches if not watch.is_absent]
        SharedPoll(self._states, self._calls).read(watches)

    def _forget(self, watch: ConsulWatch) -> None:
        with self._lock:
            self._members.discard(watch)
            query = self._alone.pop(watch, None)
            shared = self._sharing.pop(watch, None)
            if shared is not None:
                shared.watches.discard(watch)
                if not shared.watches:
                    del self._shared[shared.prefix]
                    query, shared.query = shared.query, None
        if query is not None:
            query.close()

    def _move(self) -> None:
        """Send all queries to the server that is now in use."""
        with self._lock:
            shared_queries = [shared.query for shared in self._shared.values() if shared.query]
            followers = [*self._alone.values(), *shared_queries]
        for query in followers:
            query.move()
