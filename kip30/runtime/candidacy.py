"""One candidate's nomination and the terms it leads."""

import math
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import ClassVar

from typing_extensions import override

from kip30.driver.kit.futures import fail, succeed
from kip30.driver.records import Claim, new_nonce
from kip30.errors import (
    ClosedError,
    DefiniteError,
    Kip30Error,
    LeadershipLostError,
    OutcomeUnknownError,
)
from kip30.runtime.candidacy_phases import (
    UNCERTAIN_PHASES,
    CandidacyEvent,
    CandidacyPhase,
    next_phase,
)
from kip30.runtime.dispatcher import Delivery, Dispatcher
from kip30.runtime.leased import LeaseBound
from kip30.runtime.term_work import (
    TermWork,
    ThreadOrTask,
    WorkInProgress,
    present_hold,
    present_runner,
)
from kip30.runtime.work_delivery import WorkDelivery


class Leadership(LeaseBound):
    """One term of one candidate. It ends once, and for good; the next term is a new one.

    Attributes:
        since: When this client learned of its election, in seconds since 1970 by the clock of the
            host. For people: no validity depends on it.
        step_down_requested: Set once an operator has ended the term. It stays valid for the
            candidate's ``step_down_seconds``, so that a program can finish what it has begun.
        step_down_reason: The operator, in words; empty before that.
        steps_down_at: When it ends by that, in seconds on the clock of the lease; else infinite.
        kept_until: When it can be released in the store at the earliest, likewise: a program that
            only asks whether it is valid may act on an answer of just before its end.
    """

    lost_error: ClassVar[type[DefiniteError]] = LeadershipLostError

    def __init__(  # noqa: PLR0913  made in one place
        self,
        service: str,
        claim: Claim,
        data: bytes,
        wake: Callable[[], None],
        make_future: Callable[[], Future[None]],
        *,
        progress: WorkInProgress,
    ) -> None:
        """Lead *service* under *claim*; see `LeaseBound`. Its work is kept in *progress*."""
        self.service = service
        self.since: float = time.time()
        self.step_down_requested: threading.Event = threading.Event()
        self.step_down_reason = ""
        self.steps_down_at: float = math.inf
        self.kept_until: float = math.inf
        self._progress = progress
        self._on_step_down: list[Callable[[], object]] = []
        super().__init__(claim, data, wake, make_future)

    def request_step_down(self, reason: str, at: float) -> None:
        """Note that an operator ends this, with *reason*, at the moment *at*."""
        self.step_down_reason, self.steps_down_at = reason, at
        with self._ending:
            self.step_down_requested.set()
            callbacks, self._on_step_down = self._on_step_down, []
        for callback in callbacks:
            callback()

    def on_step_down(self, callback: Callable[[], object]) -> None:
        """Call *callback*, which must not block, once that has been noted."""
        with self._ending:
            is_requested = self.step_down_requested.is_set()
            if not is_requested:
                self._on_step_down.append(callback)
        if is_requested:
            callback()

    @property
    def candidate(self) -> str:
        """The candidate that leads."""
        return self.claim.name

    @property
    def epoch(self) -> int:
        """The fencing token: greater than that of every earlier term of the service."""
        return self.claim.entry.version.major

    def begin_work(
        self,
        runner: ThreadOrTask | None = None,
        *,
        outlives_runner: bool = False,
        runs_first: Callable[[], TermWork | None] | None = None,
    ) -> TermWork:
        """Note that work runs under this, until `end_work`; see `kip30.runtime.term_work`."""
        return self._progress.begin(
            self, runner, outlives_runner=outlives_runner, runs_first=runs_first
        )

    def end_work(self, work: TermWork) -> None:
        """Note that *work* has ended. Idempotent."""
        self._progress.end(work)

    @contextmanager
    def working(self, runner: ThreadOrTask | None = None) -> Generator[None]:
        """Run the block, which *runner* runs or else the caller, as work under this."""
        work = self.begin_work(runner or present_runner())
        try:
            yield
        finally:
            self.end_work(work)

    @override
    def end(self, reason: str) -> None:
        hold = present_hold()
        if hold is not None:
            hold.keep(self._progress, self, self.remaining_seconds())
        super().end(reason)

    @override
    def __repr__(self) -> str:
        return f"<leadership of {self.service!r} by {self.candidate!r}, epoch {self.epoch}>"


LeadershipListener = Callable[[Leadership], object]


class TermDelivery(WorkDelivery[Leadership]):
    """Delivers terms to a callback, which is work under its term from the sending on."""

    def __init__(
        self, dispatcher: Dispatcher, callback: LeadershipListener | None, name: str
    ) -> None:
        """See `Delivery`."""
        super().__init__(dispatcher, callback, name, kind=name)

    @override
    def send(self, event: Leadership) -> None:
        self.send_work(event, event.begin_work, event.end_work)


class Candidacy:
    """One nomination, from nominate to resign, over any number of terms.

    Attributes:
        waiting: Futures of the next term, one for each call that waits for it, as keys alone and
            in the order of the calls; guarded by the lock of the campaign, but a future that
            completes removes itself.
        lost_answer: Whether the answer to any claim under the present nonce was lost.
        held: The term whose claim must be given back when it leaves.
        step_down_seconds: How long a term stays valid after an operator has ended it.
        priority: Of those that wait at a vacancy, the one with the highest leads.
    """

    def __init__(  # noqa: PLR0913  made in one place
        self,
        candidate: str,
        data: bytes,
        dispatcher: Dispatcher,
        *,
        on_elected: LeadershipListener | None = None,
        on_lost: LeadershipListener | None = None,
        step_down_seconds: float = 0.0,
        priority: int = 0,
        is_internal: bool = False,
    ) -> None:
        """Notify both listeners through *dispatcher*; neither waits for the other.

        Listeners that are *internal* do no work under a term, which therefore is given back without
        waiting for them.
        """
        self.candidate = candidate
        self.data = data
        self.callbacks: tuple[LeadershipListener | None, LeadershipListener | None] = (
            on_elected,
            on_lost,
        )
        self.is_internal: bool = is_internal
        self.step_down_seconds: float = step_down_seconds
        self.priority: int = priority
        delivery = Delivery[Leadership] if is_internal else TermDelivery
        self.elected: Delivery[Leadership] = delivery(dispatcher, on_elected, "on_elected")
        self.lost: Delivery[Leadership] = delivery(dispatcher, on_lost, "on_lost")
        # The nonce of claims of the next term. The campaign draws a new one when a term ends, so
        # no later claim is taken for an earlier one.
        self.nonce: str = new_nonce()
        # The newest term, which may have ended already. Written under the lock of the campaign.
        self.leadership: Leadership | None = None
        # Done once the first claim was answered, or the candidate is withdrawn: `nominate` waits.
        self.tried: Future[None] = Future()
        self.waiting: dict[Future[Leadership | None], None] = {}
        # None until it resigns; done once the store confirmed that. Set under the campaign's lock.
        self.resigned: Future[None] | None = None
        # These two are written by the campaign's task, `held` also when a term ends.
        self.held: Leadership | None = None
        self.lost_answer = False
        # Changed by `advance` alone.
        self._phase = CandidacyPhase.WAITING

    def advance(self, event: CandidacyEvent) -> CandidacyPhase:
        """Go to the next phase, and return it. The caller holds the lock of the campaign."""
        self._phase = next_phase(self._phase, event)
        return self._phase

    def is_uncertain(self) -> bool:
        """Return whether a claim may be granted whose answer has not come."""
        return self._phase in UNCERTAIN_PHASES

    def leads(self) -> bool:
        """Return whether the candidate leads at this moment."""
        leadership = self.leadership
        return leadership is not None and leadership.is_valid()

    def is_renewed_by(self, other: "Candidacy") -> bool:
        """Return whether nominating *other* asks for nothing that differs from this nomination."""
        given = zip(other.callbacks, self.callbacks, strict=True)
        return other.data == self.data and all(
            callback is None or callback == own for callback, own in given
        )

    def next_term(self) -> Future[Leadership | None]:
        """Return a future of the next term, or of None if the candidate is withdrawn before.

        A cancelled future is dropped. The caller holds the lock of the campaign.
        """
        future: Future[Leadership | None] = Future()
        waiting = self.waiting  # alone: a future may outlive the candidacy
        waiting[future] = None
        future.add_done_callback(lambda done: waiting.pop(done, None))
        return future

    def answer_waiting(self, term: Leadership | None) -> None:
        """Complete the futures of `next_term`. The caller must not hold the campaign's lock."""
        for future in list(self.waiting):
            succeed(future, term)

    def complete_resignation(
        self, resigned: Future[None], service: str, *, is_confirmed: bool
    ) -> None:
        """Complete *resigned*; with *is_confirmed* the store has confirmed the resignation."""
        if is_confirmed:
            succeed(resigned, None)
            return
        error = OutcomeUnknownError(
            f"{self.candidate!r} has resigned, but the store has not confirmed it: others can lead"
            f" {service!r} when the session is over there"
        )
        fail(resigned, error)

    def close(self) -> None:
        """End it and its term locally. The caller does not hold the lock of the campaign."""
        self.stop_callbacks()
        self.answer_waiting(None)
        # Its own on_elected may close the handle before the nomination is answered.
        is_granted = self.leadership is not None
        self.first_attempt_done(None if is_granted else ClosedError("closed while nominating"))
        if self.leadership is not None:
            self.leadership.end("closed")
        if self.resigned is not None:
            fail(self.resigned, ClosedError("closed while resigning"))

    def stop_callbacks(self) -> None:
        """Start no further call of either listener."""
        self.elected.close()
        self.lost.close()

    def first_attempt_done(self, error: Kip30Error | None = None) -> bool:
        """Let `nominate` return, or raise *error*; false if the first attempt was over before.

        It is over, too, once its caller no longer waits. An error that comes then would withdraw
        the candidate without notice, so the claim is retried, as later ones are.
        """
        return succeed(self.tried, None) if error is None else fail(self.tried, error)
