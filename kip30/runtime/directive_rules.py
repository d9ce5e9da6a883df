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
from kip30.runtime.directives import Directives, StepDown


class DirectiveRules:
    """Judges the candidates of one client for one service. Not thread-safe.

    Moments are in seconds, *now* on the clock of leases, *time_of_day* since 1970.
    """

    def __init__(self) -> None:
        """Start without directives."""
        self._directives = Directives()
        # Of the step-down with this id: until when it holds the service, and whether it is
        # fulfilled.
        self._id = ""
        self._holds_until = -math.inf
        self._is_fulfilled = False

    def note(self, directives: Directives, latest: Snapshot | None, now: float) -> None:
        """Note the newest directives, and the leader that the store shows; None if not known."""
        self._directives = directives
        step_down = directives.step_down
        if step_down is None:
            return
        is_new = step_down.id != self._id
        if is_new:
            self._id, self._is_fulfilled = step_down.id, False
        leader = None if latest is None else next(iter(latest.entries.items()), None)
        still_leads = leader is not None and leader[1].nonce == step_down.nonce
        if is_new or latest is None or still_leads:
            self._holds_until = now + step_down.hold_seconds
        if leader is not None and step_down.is_fulfilled_by(leader[0], leader[1].version.major):
            self._is_fulfilled = True

    def veto(
        self, candidate: str, now: float, time_of_day: float, *, epoch: int | None = None
    ) -> str:
        """Return why *candidate* may not claim, or not lead with *epoch*; empty if it may."""
        pause, holding = self._directives.pause, self._holding(now, time_of_day)
        if self._is_begun(epoch, time_of_day):
            return ""
        if holding is not None and holding.successor is not None:
            # Also under a pause: who hands a paused service over wants the successor to lead.
            if candidate == holding.successor:
                return ""
            if pause is None or pause.is_over(time_of_day):
                return f"the service is handed over to {holding.successor!r} by {holding.by}"
        if pause is not None and not pause.is_over(time_of_day):
            return f"the service is paused by {pause.by}"
        if holding is not None and candidate == holding.candidate:
            return f"it steps down by {holding.by}"
        return ""

    def _is_begun(self, epoch: int | None, time_of_day: float) -> bool:
        """Return whether the operator saw the claim with *epoch* before its candidate could look.

        Its time limit is for a record that was copied to a store with other epochs.
        """
        step_down = self._directives.step_down
        if step_down is None or epoch is None:
            return False
        return step_down.fulfilled == epoch and time_of_day < step_down.until

    def step_down_of(self, claim: Claim, time_of_day: float) -> StepDown | None:
        """Return the step-down that ends the term of *claim*, if there is one."""
        step_down = self._directives.step_down
        if step_down is None or step_down.is_over(time_of_day):
            return None
        entry = claim.entry
        is_it = step_down.nonce == entry.nonce and step_down.epoch == entry.version.major
        return step_down if is_it else None

    def names(self, candidate: str, now: float, time_of_day: float) -> bool:
        """Return whether a hand-over names *candidate* as the successor."""
        holding = self._holding(now, time_of_day)
        return holding is not None and holding.successor == candidate

    def due(self, now: float, time_of_day: float) -> float:
        """Return when a candidate may lead although nothing changes; infinite if never."""
        moments = list[float]()
        pause, holding = self._directives.pause, self._holding(now, time_of_day)
        if pause is not None and pause.until is not None and not pause.is_over(time_of_day):
            moments.append(now + pause.until - time_of_day)
        if holding is not None:
            moments += (self._holds_until, now + holding.until - time_of_day)
        return min(moments, default=math.inf)

    def _holding(self, now: float, time_of_day: float) -> StepDown | None:
        """Return the step-down, if it holds the service."""
        step_down = self._directives.step_down
        if step_down is None or self._is_fulfilled or step_down.is_over(time_of_day):
            return None
        return step_down if now < self._holds_until else None
