"""Vacancies of a service, by the states and refusals of the store and the turns in the line."""

import math

from kip30.driver.clock import Clock
from kip30.driver.records import Claim, Entry, HeldByOther, Snapshot

TURN_SECONDS = 0.2
"""Seconds between the claims of successive candidates near the head of the line.

It is longer than a claim and the notification of its success take, so that usually only one claim
is made. It is short, because a vacancy lasts longer by it if the first candidate is stopped.
"""


class Vacancies:
    """Judges one service for one campaign. Used by its task alone, except `is_led`."""

    def __init__(self, clock: Clock) -> None:
        """Start without a refusal."""
        self._clock = clock
        # The order of the answer that refused the newest claim, and when the service may be free
        # again by that answer (a lock-delay); infinite if it did not say.
        self._refused_at = -1
        self._free_at = math.inf
        # The claim of this campaign that was released last; None once a later claim was answered.
        self._released: Claim | None = None
        # The end of the turn of those that waited then, and the same once they get it.
        self._yields_until = -math.inf
        self._yielded_until = -math.inf
        # Since when the states show no leader; infinite while they show one.
        self._since = math.inf
        # The beginning of the turn of the candidate that was judged last.
        self._turn = math.inf

    def refused(self, held: HeldByOther) -> None:
        """Note that a claim was refused."""
        self.granted()
        self._refused_at = held.by.order
        self._free_at = math.inf
        if held.retry_after_seconds is not None:
            self._free_at = self._clock.now() + held.retry_after_seconds

    def granted(self) -> None:
        """Note that a claim was granted, which ends the vacancy."""
        self._released = None
        # Otherwise the turn in the next vacancy would be counted from the beginning of this one,
        # and come before that of candidates nearer to the head.
        self._since = math.inf

    def released(self, claim: Claim) -> None:
        """Note that the store confirmed the release of *claim*, so the service is vacant.

        The next candidate of this client, if it is its turn, need not wait for the notification.
        """
        self._released = claim
        self._yields_until = self._clock.now() + TURN_SECONDS

    def is_turn_of_others(self) -> bool:
        """Return whether the release of a term of this client gave others a turn just now."""
        return self._released is not None and self._clock.now() < self._yields_until

    def give_turn(self) -> None:
        """Note that others get that turn, after which something is due."""
        self._yielded_until = self._yields_until

    def is_turn_of(self, nonce: str, latest: Snapshot | None, turn: int) -> bool:
        """Return whether a claim with *nonce* is due after the turns of *turn* others."""
        self._turn = math.inf
        if latest is None:
            return False
        if latest.order <= self._refused_at:
            return self._clock.now() >= self._free_at
        holder = self._holder(latest)
        if holder is not None:
            self._since = math.inf
            return holder.nonce == nonce
        self._since = min(self._since, self._clock.now())
        self._turn = self._since + turn * TURN_SECONDS
        return self._clock.now() >= self._turn

    def is_led(self, latest: Snapshot | None) -> bool:
        """Return whether *latest* shows a leader whose term is not known to have ended.

        Any thread may call.
        """
        return latest is not None and self._holder(latest) is not None

    def _holder(self, latest: Snapshot) -> Entry | None:
        """Return the leader that *latest* shows, unless its term is known to have ended."""
        holder: Entry | None = next(iter(latest.entries.values()), None)
        released = self._released
        if holder is None or released is None:
            return holder
        # From the claim until its release no other candidate led, so a state from before the claim
        # is as old as one that shows the claim itself.
        is_before = latest.order <= released.order
        # By the epoch: a request that arrives again is granted another one, with the same nonce.
        is_it = holder.version.major == released.entry.version.major
        return None if is_before or is_it else holder

    def moments(self) -> tuple[float, float, float]:
        """Return when something is due next: infinite, or past, if nothing is."""
        return self._free_at, self._turn, self._yielded_until
