"""The rules by which candidates obey the directives for their service. No input or output.

1. A pause that is not over keeps every candidate from leading, except the successor of a hand-over.
2. A step-down ends the one term that it names.
3. While it holds the service, a step-down keeps its candidate from leading again. One that names a
   successor keeps all others from leading. It holds the service while the term leads, and for its
   ``hold_seconds`` after that, by each client's own clock of leases, or until it is fulfilled. So a
   successor that is dead delays an election by that time, and no longer.

A candidate reads the directives before it claims, and once more between the grant of a claim and
its term: a claim that was granted under a pause is given back before the program learns of it. That
second reading begins after the grant, so it has every directive that was acknowledged before.
"""

import math

from kip30.driver.records import Claim, Snapshot
from kip30.runtime.directives import Directives, StepDown, TermId

_LOOK_SECONDS = 10.0
"""Seconds after which a time of day is looked at again: the clock may be corrected."""
_SHORTEST_WAIT = 0.05


class DirectiveRules:
    """Judges the candidates of one client for one service. Not thread-safe.

    Moments are in seconds, *now* on the clock of leases, *time_of_day* since 1970.
    """

    def __init__(self) -> None:
        """Start without directives."""
        self._directives = Directives()
        # Of the step-down with this id: when it was seen first, until when it holds the service,
        # and the term that has fulfilled it by the states of the service.
        self._id = ""
        self._seen_at = -math.inf
        self._holds_until = -math.inf
        self._fulfilled: TermId | None = None
        # The candidates that were kept from leading when they were judged last, and not forgotten.
        self._vetoed = set[str]()

    def note(self, directives: Directives, latest: Snapshot | None, now: float) -> None:
        """Note the newest directives, and the leader that the store shows; None if not known."""
        self._directives = directives
        step_down = directives.step_down
        if step_down is None:
            return
        is_new = step_down.id != self._id
        if is_new:
            self._id, self._seen_at, self._fulfilled = step_down.id, now, None
        leader = None if latest is None else next(iter(latest.entries.items()), None)
        still_leads = leader is not None and leader[1].nonce == step_down.nonce
        if is_new or latest is None or still_leads:
            self._holds_until = now + step_down.hold_seconds
        if leader is not None and not self._fulfilled:
            candidate, entry = leader
            if step_down.is_fulfilled_by(candidate, entry.version.major):
                self._fulfilled = TermId(entry.version.major, entry.nonce)

    def veto(
        self, candidate: str, now: float, time_of_day: float, granted: TermId | None = None
    ) -> str:
        """Return why *candidate* may not claim; empty if it may.

        With *granted*, return why it may not lead in the term of a claim that was granted.
        """
        reason = self._veto(candidate, self._holding(now, time_of_day, granted), time_of_day)
        if reason:
            self._vetoed.add(candidate)
        else:
            self._vetoed.discard(candidate)
        return reason

    def step_down_of(self, claim: Claim, now: float, time_of_day: float) -> StepDown | None:
        """Return the step-down that ends the term of *claim*, if there is one."""
        step_down, entry = self._in_effect(now, time_of_day), claim.entry
        if step_down is None or step_down.nonce != entry.nonce:
            return None
        return step_down if step_down.epoch == entry.version.major else None

    def names(self, candidate: str, now: float, time_of_day: float) -> bool:
        """Return whether a hand-over names *candidate* as the successor."""
        holding = self._holding(now, time_of_day)
        return holding is not None and holding.successor == candidate

    def may_replace(
        self, candidate: str, now: float, time_of_day: float, granted: TermId | None = None
    ) -> bool:
        """Return whether *candidate*, of any client, may lead if the term *granted* is given back.

        Unlike after `veto`, nothing is due for the candidate.
        """
        holding = self._holding(now, time_of_day, granted)
        return not self._veto(candidate, holding, time_of_day)

    def holds(self, now: float, time_of_day: float) -> bool:
        """Return whether a step-down holds the service."""
        return self._holding(now, time_of_day) is not None

    def forget_vetoes(self) -> None:
        """Let nothing be due for candidates that are not judged again: some may have resigned."""
        self._vetoed.clear()

    def due(self, now: float, time_of_day: float) -> float:
        """Return when a candidate may lead although nothing changes; infinite if never.

        It may be earlier: judge again then.
        """
        if not self._vetoed:
            return math.inf
        pause, step_down = self._directives.pause, self._directives.step_down
        moments, times = list[float](), list[float]()
        if pause is not None and pause.until is not None:
            times.append(pause.until)
        if step_down is not None:
            times.append(step_down.until)
            moments += (self._holds_until, self._seen_at + step_down.seconds)
        for time in times:
            left = min(max(time - time_of_day, _SHORTEST_WAIT), _LOOK_SECONDS)
            moments.append(now + left)
        return min((moment for moment in moments if moment > now), default=math.inf)

    def _veto(self, candidate: str, holding: StepDown | None, time_of_day: float) -> str:
        pause = self._directives.pause
        is_paused = pause is not None and not pause.is_over(time_of_day)
        if holding is not None and holding.successor is not None:
            # Also under a pause: the operator of a hand-over wants the successor to lead.
            if candidate == holding.successor:
                return ""
            if not is_paused:
                return f"the service is handed over to {holding.successor!r} by {holding.by!r}"
        if pause is not None and is_paused:
            return f"the service is paused by {pause.by!r}"
        if holding is not None and candidate == holding.candidate:
            return f"it steps down by {holding.by!r}"
        return ""

    def _holding(
        self, now: float, time_of_day: float, granted: TermId | None = None
    ) -> StepDown | None:
        """Return the step-down, if it holds the service, or was fulfilled by the term *granted*.

        Its own claim may have been seen before its candidate could look.
        """
        step_down = self._in_effect(now, time_of_day)
        if step_down is None or now >= self._holds_until:
            return None
        fulfilled = step_down.fulfilled or self._fulfilled
        return None if fulfilled is not None and fulfilled != granted else step_down

    def _in_effect(self, now: float, time_of_day: float) -> StepDown | None:
        step_down = self._directives.step_down
        if step_down is None or now >= self._seen_at + step_down.seconds:
            return None
        return step_down if time_of_day < step_down.until else None
