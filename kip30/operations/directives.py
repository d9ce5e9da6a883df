"""Pausing a service, and ending the term of its leader: see `kip30.runtime.directives`.

A candidate obeys them if its setting ``plugin.operations`` is true, as it is by default for
``kip30 run``. One that does not, or an earlier version of kip30, goes on as if there were none:
nothing shows how many of these there are.

A directive is carried out by the leader itself, which ends its own term. Nothing is taken from it
in the store, so no two candidates lead at once, whatever an operator does.
"""

import getpass
import math
import platform
import time
from collections.abc import Callable
from typing import NamedTuple

from kip30.codecs import BYTES
from kip30.driver import Capability
from kip30.driver.records import Kind, Snapshot, Target, Version, new_nonce
from kip30.errors import (
    DirectiveNotObeyedError,
    DirectiveRefusedError,
    KeyExistsError,
    KeyMissingError,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    UnsupportedError,
    UsageError,
    VersionConflictError,
)
from kip30.locator import PluginLocator
from kip30.names import INTERNAL, check_id
from kip30.operations.service_line import read_line
from kip30.runtime.deadline_wait import DeadlineWait
from kip30.runtime.directives import (
    Directives,
    ElectionPause,
    StepDown,
    decode_directives,
    directives_key,
    encode_directives,
)

HOLD_SECONDS = 30.0
"""How long others hold back for the successor of a hand-over, and a leader that has stepped down
for others."""

LONGEST_REASON = 200
"""Most characters of the reason of a directive."""

LONGEST_PAUSE_SECONDS = 365 * 86_400.0

_SLACK_SECONDS = 10.0
_POLL_SECONDS = 0.1
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
        reason: Shown to operators, up to `LONGEST_REASON` characters.

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
    checked, by = _check_reason(reason), _operator()

    def paused(found: Directives) -> Directives:
        now = time.time()
        until = None if seconds is None else now + seconds
        pause = ElectionPause(by, now, checked, until)
        return found._replace(pause=pause).logged(now, by, "pause")

    return _Service(locator, service).changed(paused)


def resume_service(locator: PluginLocator, service: str) -> DirectedService:
    """End the pause of *service*. Nothing happens if there is none.

    Raises as `pause_service`.
    """
    by = _operator()

    def resumed(found: Directives) -> Directives:
        if found.pause is None:
            return found
        return found._replace(pause=None).logged(time.time(), by, "resume")

    return _Service(locator, service).changed(resumed)


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
    candidate leads now. Without one a service that is paused stays without a leader.

    Args:
        locator: Where the service is.
        service: Its name.
        successor: The candidate that must lead next; None: any but the leader.
        epoch: The epoch of the term to end; None: that of the present leader.
        wait_seconds: How long to wait; None: for the session timeout and 10 s. A program may ask
            for more time to step down.
        reason: Shown to operators, up to `LONGEST_REASON` characters.

    Raises:
        UsageError, InvalidNameError: An argument is wrong. Nothing was sent.
        UnsupportedError: The store has no ``compare-and-set``. Nothing was sent.
        DirectiveRefusedError: No candidate leads, or another term than that of *epoch*; another
            step-down is under way; or no candidate waits, or not the successor (where candidates
            form a line). Nothing was changed.
        StoreError: The present record cannot be read. Nothing was changed.
        UnavailableError: The store did not answer in time. Nothing was changed.
        DirectiveNotObeyedError: The leader, or the successor, did not do so in time. The directive
            is withdrawn.
        OutcomeUnknownError: The store did not answer any longer. The directive may be obeyed until
            it ends by itself.
    """
    if wait_seconds is not None and not 0 <= wait_seconds < math.inf:
        raise UsageError(f"cannot wait for {wait_seconds!r} s: give 0 or more")
    if successor is not None:
        check_id(successor, "candidate")
    directed = _Service(locator, service)
    usual = directed.session_timeout_seconds + _SLACK_SECONDS
    wait = usual if wait_seconds is None else wait_seconds
    return _StepDown(directed, successor, epoch, wait, _check_reason(reason)).run()


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
        self._by = _operator()
        self._action = "step-down" if successor is None else f"hand-over to {successor}"

    def run(self) -> DirectedService:
        state = self._service.leader()
        self._check(state)
        step_down = self._directive(*_term(state))
        self._service.write(lambda found: self._with(found, step_down))
        until = time.monotonic() + self._wait_seconds
        try:
            while not self._is_over(step_down) and time.monotonic() < until:
                time.sleep(_POLL_SECONDS)
            return self._ended(step_down)
        except (UnavailableError, OutcomeUnknownError) as error:
            raise OutcomeUnknownError(
                f"the store does not answer any longer: the {self._action} may be obeyed"
                f" within the next {self._wait_seconds + HOLD_SECONDS:.0f} s: {error}"
            ) from error

    def _check(self, state: Snapshot) -> None:
        """Refuse what cannot be obeyed."""
        name = self._service.name
        leader, epoch, _ = _term(state)
        if not leader and (self._successor is None or self._epoch is not None):
            raise DirectiveRefusedError(f"no candidate leads {name!r}")
        if self._epoch is not None and epoch != self._epoch:
            raise DirectiveRefusedError(
                f"{leader!r} leads {name!r} with epoch {epoch}, not {self._epoch}"
            )
        if leader and leader == self._successor:
            raise DirectiveRefusedError(f"{leader!r} leads {name!r} already")
        waiting = self._service.waiting()
        if waiting is None:  # not known
            return
        if self._successor is not None and self._successor not in waiting:
            raise DirectiveRefusedError(
                f"{self._successor!r} does not wait to lead {name!r}:"
                f" `kip30 leader {name} --all` prints the candidates that do"
            )
        if not waiting and not self._service.described().is_paused():
            raise DirectiveRefusedError(
                f"no other candidate waits to lead {name!r}: pause it first to stop its leader"
            )

    def _directive(self, leader: str, epoch: int, nonce: str) -> StepDown:
        now = time.time()
        return StepDown(
            new_nonce(),
            self._by,
            now,
            self._reason,
            now + self._wait_seconds + HOLD_SECONDS,
            epoch,
            nonce,
            leader,
            self._successor,
            HOLD_SECONDS,
        )

    def _with(self, found: Directives, step_down: StepDown) -> Directives:
        present = found.step_down
        if present is not None and not present.is_over(step_down.at):
            raise DirectiveRefusedError(
                f"a step-down of {self._service.name!r} by {present.by} is under way"
            )
        return found._replace(step_down=step_down).logged(step_down.at, self._by, self._action)

    def _is_over(self, step_down: StepDown) -> bool:
        """Return whether it is fulfilled, or its term has ended in a service that is paused."""
        leader, epoch, _ = _term(self._service.leader())
        if leader:
            return step_down.is_fulfilled_by(leader, epoch)
        return self._successor is None and self._service.described().is_paused()

    def _ended(self, step_down: StepDown) -> DirectedService:
        """Clear the directive, and return what is true then.

        Raises:
            DirectiveNotObeyedError: The term lasts, or the successor does not lead.
        """
        is_done = self._is_over(step_down)
        outcome = "done" if is_done else "withdrawn"
        leader, epoch, _ = _term(self._service.leader())
        # Its program may not have read the directives yet, and must not take the pause for new.
        is_fulfilled = bool(leader) and step_down.is_fulfilled_by(leader, epoch)
        kept = step_down._replace(fulfilled=epoch) if is_fulfilled else None

        def closed(found: Directives) -> Directives:
            if found.step_down is None or found.step_down.id != step_down.id:
                return found
            action = f"{self._action}: {outcome}"
            return found._replace(step_down=kept).logged(time.time(), self._by, action)

        after = self._service.changed(closed)
        if is_done:
            return after
        leader, _, nonce = _term(self._service.leader())
        if leader and nonce == step_down.nonce:
            why = (
                f"{leader!r} did not step down in {self._wait_seconds:g} s: it needs longer, is an"
                " earlier kip30, or does not have plugin.operations=true"
            )
        elif self._successor is None:
            return after  # the term has ended, and no candidate has claimed yet
        else:
            why = f"{self._successor!r} did not claim in {self._wait_seconds:g} s"
        raise DirectiveNotObeyedError(f"{why}; the {self._action} is withdrawn")


class _Service:
    """The record of one service, and who leads it."""

    def __init__(self, locator: PluginLocator, service: str) -> None:
        if check_id(service, "service").startswith(INTERNAL):
            raise UsageError(f"{service!r} is one of kip30's own services: they take no directives")
        self.name = service
        self._key = str(directives_key(service))
        self._locator = locator
        self._storage = locator.storage(BYTES)
        self.session_timeout_seconds: float = locator.context.session_timeout_seconds

    def described(self) -> DirectedService:
        """Read the record and the leader."""
        found, _ = self._read()
        return self._described(found)

    def changed(self, change: _Change) -> DirectedService:
        """Write what *change* makes of the record, unless it stays the same."""
        return self._described(self.write(change))

    def write(self, change: _Change) -> Directives:
        """Do that, and return the record. *change* is called again if another operator was first.

        Raises:
            UnsupportedError: The store has no ``compare-and-set``.
        """
        backend = self._locator.backend
        if Capability.COMPARE_AND_SET not in backend.capabilities:
            raise UnsupportedError(f"store {backend.name!r} has no compare-and-set")
        while True:
            found, version = self._read()
            wanted = change(found)
            if wanted == found or self._has_written(version, wanted):
                return wanted

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

    def _described(self, found: Directives) -> DirectedService:
        leader, epoch, _ = _term(self.leader())
        return DirectedService(self.name, leader or None, epoch if leader else None, found)

    def _read(self) -> tuple[Directives, Version | None]:
        found = self._storage.get(self._key)
        if found is None:
            return Directives(), None
        return decode_directives(self.name, found.value), found.version

    def _has_written(self, version: Version | None, wanted: Directives) -> bool:
        data = encode_directives(wanted)
        try:
            if version is None:
                self._storage.put(self._key, data)
            else:
                self._storage.compare_and_set(self._key, version, data)
        except (KeyExistsError, KeyMissingError, VersionConflictError):
            return False
        return True


def _term(state: Snapshot) -> tuple[str, int, str]:
    """Return the leader, its epoch, and its nonce; "", 0 and "" without a leader."""
    for candidate, entry in state.entries.items():
        return candidate, entry.version.major, entry.nonce
    return "", 0, ""


def _operator() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # the system does not know the user
        user = "?"
    return f"{user}@{platform.node()}"


def _check_reason(reason: str) -> str:
    if len(reason) > LONGEST_REASON or not reason.isprintable():
        raise UsageError(
            f"the reason must have up to {LONGEST_REASON} characters that can be printed"
        )
    return reason
