"""KAFKA-2921's adapter: a leader election with the interface of Kafka's ``LeaderElector``.

For code that was written against `startup`, `am_i_leader`, `elect`, `resign` and
two callbacks. The record is the one of Kafka's controller: ``version``,
``brokerid`` and ``timestamp`` (milliseconds, as text) in JSON. Kafka writes the ``brokerid`` as a
number and the patch of KAFKA-2921 as text: the adapter writes a number and reads both.

Both callbacks come from one state machine, `_Callbacks`. It calls one callback at a time, and
decides what is due only when the previous callback has returned:

    state      meaning                        next action, as soon as
    FOLLOWING  no term is announced           the newest term is valid: on_becoming -> LEADING
    LEADING    one term is announced          that term is over: on_resigning -> FOLLOWING

A term is over when it has ended, by the clock, by resigning or by closing, or when another broker
was observed to lead with its epoch or a newer one. So a term that ends while a callback runs is
never announced; one that was announced always gets its on_resigning, also before a newer term.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.election import Leader, LeaderChange, LeaderElection
from kip30.errors import (
    ClosedError,
    CodecError,
    LifecycleError,
    NotElectedError,
    NotNominatedError,
)
from kip30.runtime.candidacy import Leadership
from kip30.runtime.term_work import TermWork, ThreadOrTask, present_runner

log: logging.Logger = logging.getLogger(__name__)

NOBODY: Final = -1
"""Value of `LeaderElectorAdapter.leader_id` while no broker leads, as in Kafka."""

_PAYLOAD_VERSION = 1


class _Callbacks:
    """Calls two callbacks in turn, as the module describes. Thread-safe."""

    def __init__(
        self, on_becoming: Callable[[], object], on_resigning: Callable[[], object]
    ) -> None:
        """Start in the state FOLLOWING."""
        self._on_becoming = on_becoming
        self._on_resigning = on_resigning
        self._changed = threading.Condition()  # guards all below; notified when no thread calls
        self._newest: Leadership | None = None  # the newest term of ours; set by `elected`
        self._overtaken = NOBODY  # the epoch in which another broker leads; set by `overtaken`
        self._announced: Leadership | None = None  # LEADING if not None; set by `_due`
        # The terms that are not over for the callbacks: they are released in the store afterwards.
        self._work: dict[Leadership, TermWork] = {}
        self._runner: ThreadOrTask | None = None  # the runner that calls callbacks now
        self._caller: threading.Thread | None = None  # the thread that calls callbacks now
        self.latest: Leadership | None = None  # announced last, perhaps over; set by `_due`

    def elected(self, term: Leadership) -> None:
        """Announce *term*, unless it has ended by then, and later its end."""
        with self._changed:
            self._newest = term
            self._work[term] = term.begin_work(self._runner, outlives_runner=True)
        # Also when the locator is closed: then `PluginLocator.close` itself calls this.
        term.over.add_done_callback(lambda _: self.proceed())
        self.proceed()

    def overtaken(self, epoch: int) -> None:
        """Note the *epoch* in which another broker leads now, or that none does."""
        with self._changed:
            self._overtaken = epoch
        self.proceed()

    def proceed(self) -> None:
        """Call what is due. If a thread does that already, it will see what has changed."""
        with self._changed:
            if self._caller is not None:
                return
            self._caller = threading.current_thread()
        while callback := self._due():
            try:
                callback()
            except BaseException:  # the next callback must still be called
                log.exception("%r raised", callback)
            self._end_work()

    def finish(self) -> None:
        """Call what is due and wait until that is done, but not for a callback that calls this."""
        self.proceed()
        with self._changed:
            if self._caller is not threading.current_thread():
                self._changed.wait_for(lambda: self._caller is None)

    def _due(self) -> Callable[[], object] | None:
        """Make the next transition and return its callback; without one, stop calling."""
        with self._changed:
            runner = present_runner()
            self._run_by(runner)
            if self._announced is not None and self._is_over(self._announced):
                self._announced = None
                return self._on_resigning
            newest = self._newest
            if self._announced is None and newest is not None and not self._is_over(newest):
                self._announced = self.latest = newest
                if newest not in self._work:  # another broker was seen to lead meanwhile
                    self._work[newest] = newest.begin_work(runner, outlives_runner=True)
                return self._on_becoming
            self._run_by(None)
            self._caller = None
            self._changed.notify_all()
        self._end_work()
        return None

    def _run_by(self, runner: ThreadOrTask | None) -> None:
        self._runner = runner
        for work in self._work.values():
            work.runner = runner

    def _end_work(self) -> None:
        """End the work of the terms for which no callback is due any longer."""
        with self._changed:
            over = [
                term
                for term in self._work
                if term is not self._announced and (term is not self._newest or self._is_over(term))
            ]
            ended = [(term, self._work.pop(term)) for term in over]
        for term, work in ended:
            term.end_work(work)

    def _is_over(self, term: Leadership) -> bool:
        return not term.is_valid() or term.epoch <= self._overtaken


class LeaderElectorAdapter(Closeable):
    """One broker's part in one election. Thread-safe.

    The callbacks alternate, beginning with *on_becoming_leader*, and never overlap. A loss that
    was followed at once by a new term of the same broker is not hidden: both are called. A term
    that ended before *on_becoming_leader* could be called for it is not announced.

    Every announced term gets its *on_resigning_as_leader*, also if the election or its locator is
    closed: then before that close returns, unless a callback is running that takes longer than the
    operation timeout, or that closes them itself; in those cases right after that callback.

    Callbacks run on threads of kip30 or in `close`, and may call everything, `resign` and `close`
    included. One that raises is logged, and the next one is called as if it had returned.

    Because they never overlap, an *on_becoming_leader* that does not return holds
    *on_resigning_as_leader* up: while it works it must ask `am_i_leader`, and return once that is
    false. It writes with ``fence=leadership``, since it can be paused after every such question.

    A broker stays a candidate when its leadership is lost, also with its session, and needs no
    code for that. After `resign` it takes part again only by `elect`.

    Attributes:
        leader_id: The broker that was last seen to lead, or `NOBODY`. It may lag behind the store.

    Example:
        with PluginLocator().startup(config) as locator:
            election = locator.leader_election("controller")
            with LeaderElectorAdapter(take_over, give_up, 1, election) as elector:
                while elector.am_i_leader():
                    ...  # act as the controller
    """

    def __init__(
        self,
        on_becoming_leader: Callable[[], object],
        on_resigning_as_leader: Callable[[], object],
        broker_id: int,
        election: LeaderElection[str],
    ) -> None:
        """Prepare; nothing happens before `startup`."""
        self.leader_id: int = NOBODY
        self._callbacks = _Callbacks(on_becoming_leader, on_resigning_as_leader)
        self._broker_id = broker_id
        self._election = election
        self._record: str | None = None  # of the present candidacy; elect sets it, resign clears it
        self._pid = os.getpid()

    def startup(self) -> None:
        """Listen for changes of leader and take part in the election."""
        self._election.add_listener(self._leader_changed, initial=True)
        self.elect()

    def am_i_leader(self) -> bool:
        """Return whether this broker leads, by its own clock and at this moment.

        After the locator was closed, and in a forked child, it does not.
        """
        try:
            return self._election.leadership(str(self._broker_id)) is not None
        except (ClosedError, LifecycleError):
            return False

    @property
    def leadership(self) -> Leadership:
        """The term for which *on_becoming_leader* was called last, with its epoch.

        It stays after that term has ended, so that a write with ``fence=leadership`` is refused
        then instead of being sent without a fence. It changes right before *on_becoming_leader*
        is called again: a thread that works for one term must take it once, at the beginning.

        Raises:
            NotElectedError: *on_becoming_leader* has not been called yet.
        """
        latest = self._callbacks.latest
        if latest is None:
            raise NotElectedError(f"broker {self._broker_id} has not become the leader yet")
        return latest

    def elect(self) -> bool:
        """Take part, again after `resign`, and return whether this broker leads now.

        Raises:
            AuthenticationError, StoreError: The store will not take it. It does not take part.
        """
        record = self._record = self._record or self._payload()
        return self._election.nominate(
            str(self._broker_id), record, on_elected=self._callbacks.elected
        )

    def resign(self) -> None:
        """Give up leadership and candidacy, until `elect`; nothing happens without a candidacy.

        The leadership is released in the store when *on_resigning_as_leader* has returned. A
        callback that calls this does not wait for that.

        Raises:
            OutcomeUnknownError: The callback did not return, or the store did not answer, in time;
                the store gets the resignation later.
        """
        self._resign(lambda: None)

    def _resign(self, first: Callable[[], object]) -> None:
        """Resign; call *first* after the local resignation, before waiting for the store."""
        try:
            election: Any = self._election
            election._resign(str(self._broker_id), first)  # noqa: SLF001  an adapter of it
        except NotNominatedError:
            return
        finally:
            self._record = None

    @override
    def close(self) -> None:
        """Resign and stop listening. Idempotent, also after the locator was closed.

        The callback for a leadership that ends here has returned when this does, except if this
        is called by a callback: then it is called next. In a forked child nothing happens.

        Raises:
            OutcomeUnknownError: As for `resign`.
        """
        if os.getpid() != self._pid:
            return
        self._election.remove_listener(self._leader_changed)
        try:
            self._resign(self._callbacks.finish)
        except (ClosedError, LifecycleError):
            return
        finally:
            self._callbacks.finish()

    @override
    def __enter__(self) -> Self:
        """Start up."""
        self.startup()
        return self

    def _payload(self) -> str:
        timestamp = str(time.time_ns() // 1_000_000)
        record = {
            "version": _PAYLOAD_VERSION,
            "brokerid": self._broker_id,
            "timestamp": timestamp,
        }
        return json.dumps(record)

    def _leader_changed(self, change: LeaderChange[str]) -> None:
        leader = change.leader
        # First, so that the callbacks see it.
        self.leader_id = NOBODY if leader is None else _broker_of(leader)
        other = leader if leader is not None and leader.id != str(self._broker_id) else None
        self._callbacks.overtaken(NOBODY if other is None else other.epoch)


def _broker_of(leader: Leader[str]) -> int:
    """Return the broker id in the record of *leader*; without one, log it and return -1."""
    try:
        return _broker_in(json.loads(leader.data))
    except CodecError:
        return NOBODY  # `LeaderElection` has logged it
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        log.warning(
            "the record of leader %r, epoch %d, names no broker: %r",
            *(leader.id, leader.epoch, error),
        )
        return NOBODY


def _broker_in(record: Any) -> int:
    """Return the ``brokerid``, a number or text, of a decoded *record*.

    Raises:
        ValueError, TypeError, LookupError: It has none.
    """
    broker = record["brokerid"]
    if isinstance(broker, str) and broker.isascii() and broker.isdecimal():
        return int(broker)
    if type(broker) is int and broker >= 0:
        return broker
    raise ValueError(f"brokerid is {broker!r:.60}")
