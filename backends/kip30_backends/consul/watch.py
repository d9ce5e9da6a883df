"""Observing targets: a blocking query each, or one for many.

A server takes so many connections of one machine and no more. So only the first few observations
have one each. The others share some that tell whether anything has changed near them: one for each
of the first namespaces, groups and services, then one for all of a kind. Members have none: their
own records are read together whenever the session is renewed.
"""

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from typing_extensions import override

from kip30.driver import ObserveDriver, Watch
from kip30.driver.records import Kind, Snapshot, Target
from kip30.errors import ClosedError, Kip30Error, UnavailableError
from kip30_backends.consul.blocking_query import (
    Backoff,
    BlockingQuery,
    ConsulWatch,
    Ear,
    Hear,
    SharedPoll,
    Sink,
    look,
)
from kip30_backends.consul.client.exchange import Exchange, understood
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.order import Mark
from kip30_backends.consul.request import Calls
from kip30_backends.consul.snapshots import Place, States
from kip30_backends.consul.transactions import says_nothing_is_there
from kip30_backends.consul.transactions import target as request_target

_log = logging.getLogger(__name__)

_MOST_ALONE = 4
_MOST_NEAR = 2


class Bell:
    """What signals a change below *prefix*, and the watches that wait for it."""

    def __init__(self, prefix: str) -> None:
        """Begin without watches."""
        self.prefix = prefix
        self.watches: set[ConsulWatch] = set()
        self.query: BlockingQuery | None = None

    @property
    def url(self) -> str:
        """What is requested: its answer is short, however many keys there are."""
        return request_target(self.prefix, "&keys&separator=/")


class Watches:
    """All watches of one backend. Thread-safe."""

    def __init__(self, states: States, calls: Calls, backoff: Backoff) -> None:
        """Read from *states*."""
        self._states = states
        self._calls = calls
        self._backoff = backoff
        # All of these are written under the lock. A watch is in one of the first, third, fourth.
        # Watches with a query of their own.
        self._alone: dict[ConsulWatch, BlockingQuery] = {}
        # The shared queries by prefix, and the one that each other watch waits for.
        self._bells: dict[str, Bell] = {}
        self._rung: dict[ConsulWatch, Bell] = {}
        # Watches of single members, which are read together when the session is renewed.
        self._members: set[ConsulWatch] = set()
        # Whether such a read is under way; its thread alone resets it.
        self._reads_members = False
        # The threads of all queries that may still run, for `join`.
        self._threads: set[threading.Thread] = set()
        self._stopped = False
        self._lock = threading.Lock()
        calls.endpoints.on_move = self._move

    def add(self, target: Target, sink: Sink) -> ConsulWatch:
        """Tell *sink* of *target* from now on.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
            UnavailableError: There is no thread to be had.
        """
        self._calls.check()
        place = self._states.place(target)
        watch = ConsulWatch(place, self._states.mark(place).course, sink, self._forget)
        with self._lock:
            if self._stopped:
                raise ClosedError("the backend is closed")
            if target.kind is Kind.MEMBER:
                self._members.add(watch)
                return watch
            if len(self._alone) < _MOST_ALONE:
                self._alone[watch] = self._follow_alone(watch)
                return watch
            query = self._share(watch)
        exchange = self._calls.exchange(self._calls.seconds)
        try:
            self._calls.pool.do(partial(self._read_first, watch, query, exchange))
        except Kip30Error:
            query.again()
        return watch

    def read_members(self) -> None:
        """Start a read of all watched members, unless one is under way."""
        with self._lock:
            if self._stopped or self._reads_members or not self._members:
                return
            self._reads_members = True
        try:
            self._calls.pool.do(self._read_members)
        except Kip30Error as error:
            self._reads_members = False
            _log.info("members are not looked at: %s", str(error))

    def _read_members(self) -> None:
        with self._lock:
            watches = list(self._members)
        try:
            SharedPoll(self._states, self._calls).read(watches)
        except Kip30Error as error:
            _log.info("members are read again later: %s", str(error))
        finally:
            self._reads_members = False

    def _share(self, watch: ConsulWatch) -> BlockingQuery:
        """Have *watch* read whenever the bell nearest to it rings."""
        prefix = self._nearest(watch.place)
        bell = self._bells.get(prefix) or Bell(prefix)
        if bell.query is None:
            bell.query = self._follow(bell.url, lambda: partial(self._read_shared, bell))
            self._bells[prefix] = bell
        bell.watches.add(watch)
        self._rung[watch] = bell
        return bell.query

    def _nearest(self, place: Place) -> str:
        near = self._states.near(place)
        is_full = len(self._bells) >= _MOST_NEAR
        far = self._states.all_of(place.target.kind)
        return near if near in self._bells or not is_full else far

    def stop(self) -> None:
        """Close all watches, and take no more."""
        with self._lock:
            self._stopped = True
            watches = [*self._alone, *self._rung, *self._members]
        for watch in watches:
            watch.close()

    def join(self) -> None:
        """Wait until all threads have ended, unless this is called on one of them."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join()

    def _follow_alone(self, watch: ConsulWatch) -> BlockingQuery:
        return self._follow(watch.place.url, partial(self._hearer, watch))

    def _follow(self, url: str, hearer: Callable[[], Hear]) -> BlockingQuery:
        query = BlockingQuery(Ear(self._calls.endpoints), url, self._backoff, hearer)
        try:
            query.thread.start()
        except RuntimeError as error:
            raise UnavailableError(f"nobody would listen: {error}") from error
        self._threads = {query.thread, *filter(threading.Thread.is_alive, self._threads)}
        return query

    def _hearer(self, watch: ConsulWatch) -> Hear:
        return partial(self._tell, watch, self._states.mark(watch.place))

    def _tell(self, watch: ConsulWatch, sent: Mark, answer: Answer) -> None:
        index, content = understood(answer, watch.understand)
        watch.tell(self._states.order(index, sent), content)

    def _read_first(self, watch: ConsulWatch, query: BlockingQuery, exchange: Exchange) -> None:
        try:
            look(watch, self._states, exchange)
        except Kip30Error as error:
            _log.info("retrying watch of %s after: %s", watch.place.target, error)
            query.again()

    def _read_shared(self, bell: Bell, answer: Answer) -> None:
        """Read what shares *bell*, but for what is known to be absent and cannot have come.

        Consul wakes a query about a prefix that no key has at any write to the store.
        """
        with self._lock:
            watches = list(bell.watches)
        if says_nothing_is_there(answer):
            watches = [watch for watch in watches if not watch.is_absent]
        SharedPoll(self._states, self._calls).read(watches)

    def _forget(self, watch: ConsulWatch) -> None:
        with self._lock:
            self._members.discard(watch)
            query = self._alone.pop(watch, None)
            bell = self._rung.pop(watch, None)
            if bell is not None:
                bell.watches.discard(watch)
                if not bell.watches:
                    del self._bells[bell.prefix]
                    query, bell.query = bell.query, None
        if query is not None:
            query.close()

    def _move(self) -> None:
        """Listen to the server that is used now."""
        with self._lock:
            bells = [bell.query for bell in self._bells.values() if bell.query]
            followers = [*self._alone.values(), *bells]
        for query in followers:
            query.move()


class ConsulObserve(ObserveDriver):
    """Whole targets, read once or watched."""

    def __init__(self, calls: Calls, states: States, watches: Watches) -> None:
        """Read from *states* and be notified by *watches*."""
        self._calls = calls
        self._states = states
        self._watches = watches

    @override
    def snapshot(self, target: Target) -> Future[Snapshot]:
        return self._calls.on_demand(partial(self._states.read, self._states.place(target)))

    @override
    def watch(self, target: Target, sink: Callable[[Snapshot], None]) -> Watch:
        return self._watches.add(target, sink)
