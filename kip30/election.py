"""KIP-30's leader election: one portable class over every store.

Two processes never believe in the same leadership at once, provided that their clocks run at the
same rate, within the lease margin. Data that a former leader must not write is written with
``fence=leadership``: only the store can rule out that a process paused between the check and the
write.
"""

import math
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Generic, TypeVar

from typing_extensions import override

from kip30.codecs import Codec
from kip30.driver.clock import Clock
from kip30.driver.records import Kind, Snapshot, Target
from kip30.errors import NotElectedError, NotNominatedError, OutcomeUnknownError, UsageError
from kip30.names import check_id
from kip30.runtime.base_handle import Handle
from kip30.runtime.campaign import Campaign
from kip30.runtime.candidacy import Candidacy, Leadership, LeadershipListener
from kip30.runtime.future_callbacks import check_callable
from kip30.runtime.leader_views import Leader, LeaderChange, LeaderViews
from kip30.runtime.open_store import OpenStore
from kip30.runtime.priority_rules import nominated_priority

__all__ = ["Leader", "LeaderChange", "LeaderElection"]

T = TypeVar("T")

_LONGEST_WAIT = 1.0
_UNCONFIRMED = "{!r} has resigned, but the store has not confirmed it yet"


class LeaderElection(Handle, Generic[T]):
    """Candidates for one service, at most one of which leads it. Thread-safe.

    A nominated candidate stays eligible until it resigns, this object or its locator is
    closed, or the process ends; also over a lost session, after which it may be elected
    again, with a new epoch. Epochs strictly grow with every change of leader and are never
    reused. A vacant service goes to a live nominee; no order is promised.

    Every method may raise `ClosedError` or `LifecycleError`; then nothing was sent.
    """

    def __init__(
        self, store: OpenStore, service: str, codec: Codec[T], owner: object = None
    ) -> None:
        """Use `PluginLocator.leader_election` instead."""
        self.service: str = check_id(service, "service")
        super().__init__(store, owner)
        self._codec = codec
        self._views = LeaderViews(service, codec)
        self._target = Target(Kind.SERVICE, service)
        self._campaign = Campaign(store, service)
        # Of the candidates that the close of this handle withdrew.
        self._resigning: Sequence[Future[None]] = ()

    def get_leader(self) -> Leader[T] | None:
        """Return the present leader, read from the store now, or None.

        A leader whose data this object's codec cannot decode is returned as well: only
        `Leader.data` raises then. A warning is logged once for each such term.

        Raises:
            UnavailableError: The store did not answer by the operation timeout.
            StoreError: The record of the leader is another program's, a newer kip30's, or damaged.
        """
        return self._leader(self._store.wait(self._state()))

    def nominate(  # noqa: PLR0913  all but two are options
        self,
        candidate: str,
        data: T,
        *,
        on_elected: LeadershipListener | None = None,
        on_lost: LeadershipListener | None = None,
        step_down_seconds: float = 0.0,
        priority: int | None = None,
    ) -> bool:
        """Make *candidate* eligible and return whether it leads now.

        Nominating a nominated candidate again with the same data, and with the same callbacks or
        none, changes nothing. While the store does not answer, the candidate stays eligible and
        false is returned after the operation timeout.

        Args:
            candidate: An id of the caller's choice.
            data: What `get_leader` shows of it while it leads.
            on_elected: Called with the `Leadership` of every term, in order.
            on_lost: Called with the `Leadership` of every term that ended, unless by closing;
                it does not wait for *on_elected* to return. No other candidate is elected before
                both have returned, unless the lease would have ended by then.
            step_down_seconds: How long a term stays valid once an operator has ended it, which sets
                `Leadership.step_down_requested`. Only with the setting ``plugin.operations``. The
                value of the first nomination holds until `resign`.
            priority: A whole number from 0 to 100; None: that of the setting ``plugin.priority``.
                When the service becomes vacant, the waiting candidate of the highest priority
                leads. A leader is never replaced by a better candidate, and a better one that does
                not claim delays the others for a moment only. Above 0 only with the setting
                ``plugin.operations``. The value of the first nomination holds until `resign`.

        Raises:
            InvalidNameError, CodecError, ValueTooLargeError, UsageError: Nothing was sent.
            AlreadyNominatedError: It is nominated on this handle with other data or callbacks.
                That nomination stays as it is: `resign` it first.
            AuthenticationError, StoreError: The store refuses the claim. Not nominated. A refusal
                after this has returned is retried: the candidate stays eligible.
        """
        candidacy = self._candidacy(
            candidate,
            data,
            on_elected,
            on_lost,
            step_down_seconds=step_down_seconds,
            priority=priority,
        )
        kept = self._campaign.add(candidacy)
        return self._tried(kept, self._store.context.operation_timeout_seconds)

    def resign(self, candidate: str) -> None:
        """End the leadership and the candidacy of *candidate*; nominate again to return.

        The leadership ends locally as soon as this is called. It is released in the store when the
        work under it has let go: callbacks of the candidate have returned, *on_lost* included, and
        a `lead` in another thread has left its block; at the latest when the lease would have ended
        without another renewal. A callback or a block that calls this has then let go.

        Raises:
            NotNominatedError: It is not nominated here.
            OutcomeUnknownError: The work did not let go, or the store did not answer, by the
                operation timeout. It is released later; at the latest the lease ends by itself.
        """
        self._resign(candidate)

    def leadership(self, candidate: str) -> Leadership | None:
        """Return the present term of *candidate*, or None if it does not lead."""
        self._check()
        candidacy = self._campaign.find(candidate)
        return candidacy.leadership if candidacy is not None and candidacy.leads() else None

    def candidates(self) -> dict[str, Leadership | None]:
        """Return the candidates that are nominated here, each with its term, or None.

        A term that has ended by the clock of its lease is not returned. Sends nothing, and never
        waits for the store.
        """
        self._check()
        return self._campaign.candidates()

    @contextmanager
    def lead(
        self,
        candidate: str,
        data: T,
        *,
        timeout_seconds: float | None = None,
        step_down_seconds: float = 0.0,
        priority: int | None = None,
    ) -> Generator[Leadership]:
        """Nominate *candidate*, wait until it leads, and resign at the end of the block.

        The block keeps running when the leadership is lost: check ``leadership.lost`` or
        ``check()``, and write with ``fence=leadership``. A block that is left after
        ``leadership.step_down_requested`` was set hands over at once; otherwise the term ends
        *step_down_seconds* later, as for `nominate`. The *priority* is as there, too.

        With a *timeout_seconds* of 0 the candidate makes one attempt, and this ends with its
        answer. Otherwise the time counts from the end of the first attempt, which itself is given
        no longer than *timeout_seconds* and the operation timeout.

        Raises:
            NotElectedError: Not elected within *timeout_seconds*. The candidate has resigned.
            AlreadyNominatedError: It is nominated on this handle, perhaps by another `lead`.
                That nomination stays as it is.
            UsageError: A number of seconds is negative or not a number, or *priority* is none, or
                has no effect. Nothing was sent.
        """
        candidacy = self._candidacy(
            candidate, data, step_down_seconds=step_down_seconds, priority=priority
        )
        seconds = self._store.context.operation_timeout_seconds
        first_try = first_try_seconds(timeout_seconds, seconds)
        patience = 0.0  # it may be refused, or Ctrl-C come before it is known to be nominated
        try:
            self._campaign.add(candidacy, alone=True)
            patience = seconds
            self._tried(candidacy, first_try)
            leadership = self.wait_elected(candidate, timeout_seconds)
            if leadership is None:
                patience = 0.0
                raise NotElectedError(f"{candidate!r} was not elected to lead {self.service!r}")
            with leadership.working():
                yield leadership
        finally:
            if not self._store.is_foreign():
                wait([self._campaign.withdraw(candidacy)], patience)

    def wait_elected(self, candidate: str, timeout_seconds: float | None) -> Leadership | None:
        """Wait until the nominated *candidate* leads; None after *timeout_seconds* or resign.

        Raises:
            UsageError: *timeout_seconds* is negative or not a number.
        """
        self._check()
        clock = self._store.context.clock
        until = clock.now() + waiting_seconds(timeout_seconds)
        while True:
            term = _result_by(until, clock, self._campaign.elected(candidate))
            if term is None or term.is_valid():
                return term

    def share_lease(self, leadership: Leadership) -> int:
        """Return a file descriptor that keeps *leadership*'s lease.

        While another process holds a duplicate of it open, the death of this one does not free
        the service; the session timeout still does. It keeps the whole session, and belongs to the
        store: pass a duplicate on, and do not close the original.

        Raises:
            UnsupportedError: The store does not offer ``lease-sharing``.
            UsageError: *leadership* has ended: there is nothing to share.
        """
        self._check()
        return self._store.share_lease(leadership.lease)

    def add_listener(
        self, callback: Callable[[LeaderChange[T]], object], *, initial: bool = False
    ) -> None:
        """Call *callback* at every change of leader, as `ListenerRegistry` promises it.

        A re-election of the same candidate is a change. With *initial*, also called once for
        the present leader.
        """
        self._check()
        self._callbacks.add(self._target, self._views.change, callback, initial=initial)

    def remove_listener(self, callback: Callable[[LeaderChange[T]], object]) -> None:
        """Remove *callback*, if it was added: no call of it starts after this returns."""
        self._callbacks.remove(self._target, callback)

    @override
    def _end_claims_locally(self) -> None:
        self._resigning = self._campaign.retire()

    @override
    def _give_back(self) -> Sequence[Future[None]]:
        return self._resigning

    # -- what `kip30.aio` shares: requests and answers, without the waiting in between

    def _state(self) -> Future[Snapshot]:
        self._check()
        return self._store.drivers.observe.snapshot(self._target)

    def _leader(self, snapshot: Snapshot) -> Leader[T] | None:
        self._store.unreadable.note(self._target, snapshot.unreadable)
        return self._views.leader(snapshot)

    def _candidacy(  # noqa: PLR0913  as `nominate`
        self,
        candidate: str,
        data: T,
        on_elected: LeadershipListener | None = None,
        on_lost: LeadershipListener | None = None,
        *,
        step_down_seconds: float = 0.0,
        priority: int | None = None,
        is_internal: bool = False,
    ) -> Candidacy:
        """Return a nomination that is not made yet; see `Candidacy`."""
        self._check()
        check_callable(on_elected=on_elected, on_lost=on_lost)
        return Candidacy(
            check_id(candidate, "candidate"),
            self._store.encode(self._codec, data),
            self._store.dispatcher,
            on_elected=on_elected,
            on_lost=on_lost,
            step_down_seconds=_finite_seconds("step_down_seconds", step_down_seconds),
            priority=nominated_priority(
                self.service,
                priority,
                default=0 if is_internal else self._store.priority,
                is_honoured=self._store.obeys_directives,
            ),
            is_internal=is_internal,
        )

    def _tried(self, candidacy: Candidacy, seconds: float) -> bool:
        """Wait up to *seconds* for the first attempt of *candidacy*; return whether it leads."""
        try:
            wait([candidacy.tried], seconds)
        finally:
            candidacy.first_attempt_done()
        candidacy.tried.result()
        return candidacy.leads()

    def _resign(self, candidate: str, first: Callable[[], object] = lambda: None) -> None:
        """Resign; call *first* after the local resignation, before waiting for the store."""
        resigned = self._resigned(candidate)
        if resigned is None:
            return
        first()
        if not wait([resigned], self._store.context.operation_timeout_seconds).done:
            raise OutcomeUnknownError(_UNCONFIRMED.format(candidate))
        resigned.result()

    def _resigned(self, candidate: str) -> Future[None] | None:
        """Withdraw *candidate*, locally at once; the future ends when the store has confirmed it.

        None if that cannot be sent before the caller, a callback of the candidate, returns:
        another one waits for it.
        """
        self._check()
        candidacy = self._campaign.find(candidate)
        if candidacy is None:
            raise NotNominatedError(f"{candidate!r} is not nominated for {self.service!r} here")
        resigned = self._campaign.withdraw(candidacy)
        return None if self._campaign.waits_for_caller(candidacy) else resigned


def waiting_seconds(timeout_seconds: float | None) -> float:
    """Return how long to wait to be elected, in seconds: without limit by default.

    Raises:
        UsageError: *timeout_seconds* is negative or not a number.
    """
    if timeout_seconds is None:
        return math.inf
    if not timeout_seconds >= 0:  # also not a number
        raise UsageError(f"timeout_seconds must be 0 or more, not {timeout_seconds!r}")
    return timeout_seconds


def _finite_seconds(name: str, seconds: float) -> float:
    if not 0 <= seconds < math.inf:  # also not a number
        raise UsageError(f"{name} must be 0 or more, and finite, not {seconds!r}")
    return seconds


def first_try_seconds(timeout_seconds: float | None, patience: float) -> float:
    """Return how long `LeaderElection.lead` waits for its first attempt, in seconds.

    Raises:
        UsageError: *timeout_seconds* is negative or not a number.
    """
    return min(patience, waiting_seconds(timeout_seconds) or patience)


def _result_by(until: float, clock: Clock, future: Future[Leadership | None]) -> Leadership | None:
    """Return the result of *future*, or None when *clock* reaches *until*; then cancel it.

    It waits in short pieces, because a future's own timeout is paused while the system is
    suspended.
    """
    while (left := until - clock.now()) > 0:
        if wait([future], min(left, _LONGEST_WAIT)).done:
            return future.result()
    return None if future.cancel() else future.result()
