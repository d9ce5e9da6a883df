"""Pausing a service, and ending the term of its leader: see `kip30.runtime.directives`.

A candidate obeys them if its setting ``plugin.operations`` is true, as it is by default for
``kip30 run``. One that does not, or an earlier version of kip30, goes on as if there were none:
nothing shows how many of these there are.

A directive is carried out by the leader itself, which ends its own term. Nothing is taken from it
in the store, so no two candidates lead at once, whatever an operator does.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from kip30.driver.records import Kind, Snapshot, Target, new_nonce
from kip30.errors import (
    DirectiveNotObeyedError,
    DirectiveRefusedError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    UsageError,
)
from kip30.locator import PluginLocator
from kip30.names import INTERNAL, check_id
from kip30.operations.operator_records import OperatorRecord, check_reason, this_operator
from kip30.operations.service_line import read_line
from kip30.runtime.deadline_wait import DeadlineWait
from kip30.runtime.directives import (
    Directives,
    ElectionPause,
    StepDown,
    TermId,
    decode_directives,
    directives_key,
    encode_directives,
)

HOLD_SECONDS = 30.0
"""How long others hold back for the successor of a hand-over, and a leader that has stepped down
for others."""

LONGEST_PAUSE_SECONDS = 365 * 86_400.0
LONGEST_WAIT_SECONDS = 86_400.0

_SLACK_SECONDS = 10.0
_CLOCK_SECONDS = 3_600.0
"""Seconds by which clocks may differ, so that a step-down has an effect."""
_POLL_SECONDS = 0.1
_VACANT = Snapshot(0, {})
_Change = Callable[[Directives], Directives]


class DirectedService(NamedTuple):
    """A service, as it was after a directive.

    Attributes:
        service: Its name.
        leader: The candidate that leads; None: no candidate does.
        epoch: The epoch of its term; None without a leader.
        directives: The record of its directives.
    """

    service: str
    leader: str | None
    epoch: int | None
    directives: Directives

    def is_paused(self) -> bool:
        """Return whether a pause is in effect, by the clock of this machine."""
        pause = self.directives.pause
        return pause is not None and not pause.is_over(time.time())


def read_directives(locator: PluginLocator, service: str) -> DirectedService:
    """Return the directives for *service*, and who leads it.

    Raises:
        InvalidNameError: The name cannot be that of a service, or is too long for directives.
        UnavailableError: The store did not answer in time.
        StoreError: The record is another program's, a later kip30's, or damaged.
    """
    return _Service(locator, service).described()


def pause_service(
    locator: PluginLocator, service: str, *, seconds: float | None = None, reason: str = ""
) -> DirectedService:
    """Keep all candidates for *service* from being elected, until `resume_service`.

    A leader leads on. A pause that is there is replaced.

    Args:
        locator: Where the service is.
        service: Its name. It need not have candidates yet.
        seconds: After how long it ends by itself, by the time of day; None: never.
        reason: Shown to operators, up to 200 characters.

    Raises:
        UsageError: *seconds* or *reason* is out of range, or the service is one of kip30 itself.
            Nothing was sent.
        UnsupportedError: The store has no ``compare-and-set``. Nothing was sent.
        StoreError: The present record cannot be read. Nothing was changed.
        UnavailableError: The store did not answer in time. Nothing was changed.
        OutcomeUnknownError: The answer was lost: the service may be paused.
    """
    if seconds is not None and not 0 < seconds <= LONGEST_PAUSE_SECONDS:
        raise UsageError(f"a pause of {seconds:g} s is not possible: give up to a year")
    checked, by = check_reason(reason), this_operator()
    directed = _Service(locator, service)
    state = directed.leader()

    def paused(found: Directives) -> Directives:
        now = time.time()
        until = None if seconds is None else now + seconds
        pause = ElectionPause(by, now, checked, until)
        return found._replace(pause=pause).logged(now, by, "pause")

    return directed.described(directed.record.write(paused), state)


def resume_service(locator: PluginLocator, service: str) -> DirectedService:
    """End the pause of *service*, and a step-down that is under way, if there are any.

    A step-down counts as under way while it may have an effect for any client, whose clock may
    differ. A leader that has seen it steps down all the same. Raises as `pause_service`.
    """
    by = this_operator()
    directed = _Service(locator, service)
    state = directed.leader()

    def resumed(found: Directives) -> Directives:
        now, step_down = time.time(), found.step_down
        is_under_way = step_down is not None and step_down.may_be_obeyed(now)
        if found.pause is None and not is_under_way:
            return found
        kept = None if is_under_way else step_down
        return found._replace(pause=None, step_down=kept).logged(now, by, "resume")

    return directed.described(directed.record.write(resumed), state)


def check_directed(service: str) -> None:
    """Return if *service* can have directives.

    Raises:
        UsageError: It is one of kip30 itself.
        InvalidNameError: The name cannot be that of a service, or is too long for directives.
    """
    if check_id(service, "service").startswith(INTERNAL):
        raise UsageError(f"{service!r} is one of kip30's own services: they take no directives")
    directives_key(service)


def step_down_leader(  # noqa: PLR0913  keywords
    locator: PluginLocator,
    service: str,
    *,
    successor: str | None = None,
    epoch: int | None = None,
    wait_seconds: float | None = None,
    reason: str = "",
) -> DirectedService:
    """End the term of the leader of *service*, and wait until another candidate leads.

    With a *successor* that one leads next, also while the service is paused, and also if no
    candidate leads now. Without one a service that is paused stays without a leader. If the caller
    is interrupted, the directive is withdrawn.

    Args:
        locator: Where the service is.
        service: Its name.
        successor: The candidate that must lead next; None: any but the leader.
        epoch: The epoch of the term to end; 0: no candidate leads; None: that of the present
            leader.
        wait_seconds: How long to wait, a day at most; None: for the session timeout and 10 s. A
            program may take more time to step down.
        reason: Shown to operators, up to 200 characters.

    Raises:
        UsageError, InvalidNameError: An argument is wrong. Nothing was sent.
        UnsupportedError: The store has no ``compare-and-set``. Nothing was sent.
        DirectiveRefusedError: No candidate leads, or another term than that of *epoch*; another
            step-down is under way; or no candidate waits, or not the successor (where candidates
            form a line, which has one of each process). Nothing was changed.
        StoreError: The present record cannot be read. Nothing was changed.
        UnavailableError: The store did not answer in time. Nothing was changed.
        DirectiveNotObeyedError: The leader, or the successor, did not do so in time. The directive
            is withdrawn. A leader that has seen it steps down all the same.
        OutcomeUnknownError: The store did not answer any longer. The directive may be obeyed until
            it ends by itself.
    """
    if wait_seconds is not None and not 0 <= wait_seconds <= LONGEST_WAIT_SECONDS:
        raise UsageError(f"cannot wait for {wait_seconds!r} s: give 0 or more, up to a day")
    if successor is not None:
        check_id(successor, "candidate")
    directed = _Service(locator, service)
    usual = directed.session_timeout_seconds + _SLACK_SECONDS
    wait = usual if wait_seconds is None else wait_seconds
    return _StepDown(directed, successor, epoch, wait, check_reason(reason)).run()


class _StepDown:
    """One directive to step down, from its checks to its end."""

    def __init__(
        self,
        service: "_Service",
        successor: str | None,
        epoch: int | None,
        wait_seconds: float,
        reason: str,
    ) -> None:
        self._service = service
        self._successor = successor
        self._epoch = epoch
        self._wait_seconds = wait_seconds
        self._reason = reason
        self._by = this_operator()
        self._action = "step-down" if successor is None else f"hand-over to {successor}"

    def run(self) -> DirectedService:
        state = self._service.leader()
        self._check(state)
        step_down = self._directive(*_term(state))
        self._write(step_down, _term(state)[2])
        try:
            self._await(step_down, time.monotonic() + self._wait_seconds)
            return self._ended(step_down)
        except DirectiveNotObeyedError:
            raise
        except Kip30Error as error:
            raise OutcomeUnknownError(
                f"the {self._action} may be obeyed within the next"
                f" {self._wait_seconds + HOLD_SECONDS:.0f} s: {error}"
            ) from error
        except BaseException:  # the operator gives up
            with suppress(Kip30Error):
                self._close(step_down, None, "withdrawn")
            raise

    def _write(self, step_down: StepDown, nonce: str) -> None:
        try:
            self._service.record.write(lambda found: self._with(found, step_down, nonce))
        except Kip30Error:
            raise
        except BaseException:  # the operator gives up, and the write may be on its way
            with suppress(Kip30Error):
                self._withdraw(step_down)
            raise

    def _withdraw(self, step_down: StepDown) -> None:
        """Withdraw *step_down*, also if it is not there yet: its write is refused from now on.

        Every write of the record takes the version that the one before has read.
        """

        def withdrawn(found: Directives) -> Directives:
            present = found.step_down
            kept = None if present is not None and present.id == step_down.id else present
            action = f"{self._action}: withdrawn"
            return found._replace(step_down=kept).logged(time.time(), self._by, action)

        self._service.record.write(withdrawn)

    def _await(self, step_down: StepDown, until: float) -> None:
        """Wait until it is fulfilled, or until the moment *until*; a store may be silent for it."""
        while time.monotonic() < until:
            with suppress(UnavailableError):
                if self._is_over(step_down, self._service.leader()):
                    return
            time.sleep(_POLL_SECONDS)

    def _check(self, state: Snapshot) -> None:
        """Refuse what cannot be obeyed."""
        name = self._service.name
        leader, epoch, _ = _term(state)
        if not leader and (self._successor is None or self._epoch):
            raise DirectiveRefusedError(f"no candidate leads {name!r}")
        if self._epoch is not None and epoch != self._epoch:
            expected = self._epoch or "no candidate"
            raise DirectiveRefusedError(
                f"{leader!r} leads {name!r} with epoch {epoch}, not {expected}"
            )
        if leader and leader == self._successor:
            raise DirectiveRefusedError(f"{leader!r} leads {name!r} already")
        waiting = self._service.waiting()
        if waiting is None:  # not known
            return
        if self._successor is not None and self._successor not in waiting:
            raise DirectiveRefusedError(
                f"{self._successor!r} does not wait to lead {name!r}: `kip30 leader {name} --all`"
                " prints the candidates that do, one of each process"
            )
        # One with the leader's id, in another process, would hold back as the leader does.
        if not waiting - {leader} and not self._service.described(state=state).is_paused():
            raise DirectiveRefusedError(
                f"no other candidate waits to lead {name!r}, or only those with the id of its"
                " leader: pause it first to stop its leader"
            )

    def _directive(self, leader: str, epoch: int, nonce: str) -> StepDown:
        now = time.time()
        return StepDown(
            new_nonce(),
            self._by,
            now,
            self._reason,
            self._wait_seconds + HOLD_SECONDS,
            now + self._wait_seconds + HOLD_SECONDS + _CLOCK_SECONDS,
            epoch,
            nonce,
            leader,
            self._successor,
            HOLD_SECONDS,
        )

    def _with(self, found: Directives, step_down: StepDown, nonce: str) -> Directives:
        """Return *found* with *step_down*, unless another one is under way.

        One whose term has ended, and which names no successor, only keeps its candidate back.
        """
        present = found.step_down
        is_under_way = present is not None and not present.is_over(step_down.at)
        if present and is_under_way and (present.successor is not None or present.nonce == nonce):
            raise DirectiveRefusedError(
                f"a step-down of {self._service.name!r} by {present.by!r} is under way:"
                f" `kip30 resume {self._service.name}` withdraws it"
            )
        return found._replace(step_down=step_down).logged(step_down.at, self._by, self._action)

    def _is_over(self, step_down: StepDown, state: Snapshot) -> bool:
        """Return whether it is fulfilled, or its term has ended in a service that is paused."""
        leader, epoch, _ = _term(state)
        if leader:
            return step_down.is_fulfilled_by(leader, epoch)
        return self._successor is None and self._service.described(state=state).is_paused()

    def _ended(self, step_down: StepDown) -> DirectedService:
        """Close the directive, and return what is true then.

        Raises:
            DirectiveNotObeyedError: The term lasts, or the successor does not lead.
        """
        state = self._service.leader()
        leader, epoch, nonce = _term(state)
        if leader and step_down.is_fulfilled_by(leader, epoch):
            # Its program may not have read the directives yet, and must not take a pause for new.
            fulfilled = step_down._replace(fulfilled=TermId(epoch, nonce))
            return self._close(step_down, fulfilled, "done", state)
        if leader and nonce == step_down.nonce:
            why = (
                f"{leader!r} did not step down in {self._wait_seconds:g} s: it needs longer, is an"
                " earlier kip30, or does not have plugin.operations=true"
            )
        elif self._successor is None:
            # The former leader stands back until the directive ends by itself.
            return self._close(step_down, step_down, "done", state)
        else:
            why = f"{self._successor!r} did not claim in {self._wait_seconds:g} s"
        self._close(step_down, None, "withdrawn", state)
        raise DirectiveNotObeyedError(f"{why}; the {self._action} is withdrawn")

    def _close(
        self, step_down: StepDown, kept: StepDown | None, outcome: str, state: Snapshot = _VACANT
    ) -> DirectedService:
        """Put *kept* in place of *step_down*, unless that was replaced, and log the *outcome*."""

        def closed(found: Directives) -> Directives:
            if found.step_down is None or found.step_down.id != step_down.id:
                return found
            action = f"{self._action}: {outcome}"
            return found._replace(step_down=kept).logged(time.time(), self._by, action)

        return self._service.described(self._service.record.write(closed), state)


class _Service:
    """The record of one service, and who leads it."""

    def __init__(self, locator: PluginLocator, service: str) -> None:
        check_directed(service)
        self.name = service
        self._locator = locator
        self.record = OperatorRecord(
            locator,
            directives_key(service),
            Directives(),
            partial(decode_directives, service),
            encode_directives,
        )
        self.session_timeout_seconds: float = locator.context.session_timeout_seconds

    def described(
        self, directives: Directives | None = None, state: Snapshot | None = None
    ) -> DirectedService:
        """Return *directives* and the leader that *state* shows; read what is not given."""
        leader, epoch, _ = _term(self.leader() if state is None else state)
        found = self.record.read() if directives is None else directives
        return DirectedService(self.name, leader or None, epoch if leader else None, found)

    def leader(self) -> Snapshot:
        """Return the state of the service, read now."""
        backend, context = self._locator.backend, self._locator.context
        wait = DeadlineWait(backend.name, context.operation_timeout_seconds, UnavailableError)
        state = wait(backend.observe.snapshot(Target(Kind.SERVICE, self.name)))
        for reason in state.unreadable.values():
            raise StoreError(f"the leader of {self.name!r} cannot be read: {reason}")
        return state

    def waiting(self) -> set[str] | None:
        """Return the candidates in the line, one of each client; None if that is not known."""
        if not self._locator.backend.election.forms_line:
            return None
        places = [one.place for one in read_line(self._locator, self.name)]
        known = {place.candidate for place in places if place is not None}
        return known if len(known) == len(places) else None


def _term(state: Snapshot) -> tuple[str, int, str]:
    """Return the leader, its epoch, and its nonce; "", 0 and "" without a leader."""
    for candidate, entry in state.entries.items():
        return candidate, entry.version.major, entry.nonce
    return "", 0, ""
