"""The rules by which candidates leave a vacant service to those of a higher priority.

No input or output. A client that was granted a claim, or is about to claim, looks at the candidates
that wait with a priority above 0. If one of another client has a higher priority than its own, it
leaves a *turn* to it: it claims again after `PRIORITY_TURN_SECONDS`, or after as many turns as
there are higher priorities, up to `_MOST_TURNS`, so that of those that are stopped none comes in
the way of the next one.

A candidate that has had a turn is passed over until the vacancy has ended: a candidate that had the
same turn leads, or one of this client; at the latest after a session timeout. Other leaders do not
count, because their claims may be those that are just given back. So one that is stopped delays
each client once, and two clients never wait for each other, because a client only waits for a
higher priority than its own.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kip30.config import MAX_PRIORITY
from kip30.driver.records import Version
from kip30.errors import UsageError
from kip30.names import INTERNAL
from kip30.runtime.vacancies import TURN_SECONDS

PRIORITY_TURN_SECONDS = 2 * TURN_SECONDS
"""Seconds that a candidate has to claim before those of lower priorities.

It has two turns of candidates of its own priority.
"""

PRIORITY_TURN_OF_POLLS_SECONDS = 1.0
"""The same on a store on which candidates poll a service: Cassandra, twice a second by default."""

_MOST_TURNS = 3


class PreferredCandidate(NamedTuple):
    """A candidate with a priority above 0 that waits in another client.

    Attributes:
        version: The version of its record, which identifies the record; it grows in the order in
            which candidates began to wait.
        candidate: Its id.
        priority: Its priority.
    """

    version: Version
    candidate: str
    priority: int


class PriorityRules:
    """Judges the candidates of one client for one service. Not thread-safe.

    Moments are in seconds, on the clock of leases.
    """

    def __init__(self, turn_seconds: float, session_seconds: float) -> None:
        """Start without other candidates."""
        self._turn_seconds = turn_seconds
        self._session_seconds = session_seconds
        # Those that were seen last, the highest priority first.
        self._others: Sequence[PreferredCandidate] = ()
        # Those that have had a turn in this vacancy, and until when they get no other one.
        self._passed_over = dict[PreferredCandidate, float]()
        # Until when candidates with a priority below the second number hold back.
        self._holds_until = -math.inf
        self._holds_below = 0
        # The number of turns that they last.
        self._turns = 0

    def saw_others(self, others: Iterable[PreferredCandidate]) -> None:
        """Note those that wait in other clients, and that directives let lead."""
        self._others = sorted(others, key=lambda one: (-one.priority, one.version))

    def saw_leader(self, candidate: str) -> None:
        """Note that *candidate* leads: if a turn was left to it, that vacancy is over."""
        if any(one.candidate == candidate for one in self._passed_over):
            self._passed_over.clear()

    def led(self) -> None:
        """Note that a candidate of this client leads: at the next vacancy all have a turn again."""
        self._passed_over.clear()
        self._holds_until = -math.inf

    def better(self, priority: int, now: float) -> PreferredCandidate | None:
        """Return the first one that a candidate with *priority* must leave a turn to, if any."""
        return next(iter(self._better(priority, now)), None)

    def leave_turn(self, priority: int, now: float) -> None:
        """Leave a turn to all that are better than a candidate with *priority*, from now on."""
        better = self._better(priority, now)
        self._turns = min(len({one.priority for one in better}), _MOST_TURNS)
        self._holds_below = max((one.priority for one in better), default=0)
        self.begin_turn(now)
        until = self._holds_until + self._session_seconds
        still = {one: end for one, end in self._passed_over.items() if now < end}
        self._passed_over = still | dict.fromkeys(better, until)

    def begin_turn(self, now: float) -> None:
        """Count that turn from now on: only now can others claim."""
        self._holds_until = now + self._turns * self._turn_seconds

    def holds_back(self, priority: int, now: float) -> bool:
        """Return whether a candidate with *priority* must not claim now."""
        return now < self._holds_until and priority < self._holds_below

    def due(self) -> float:
        """Return until when candidates hold back; past or infinite if none does."""
        return self._holds_until

    def turns_before(self, priority: int, version: Version | None) -> int:
        """Return how many others with this *priority* began to wait before *version*."""
        if version is None:
            return 0
        return sum(one.priority == priority and one.version < version for one in self._others)

    def _better(self, priority: int, now: float) -> Sequence[PreferredCandidate]:
        return [
            one
            for one in self._others
            if one.priority > priority and now >= self._passed_over.get(one, -math.inf)
        ]


def check_priority(priority: object) -> int:
    """Return *priority* if it is one.

    Raises:
        UsageError: It is not.
    """
    if type(priority) is int and 0 <= priority <= MAX_PRIORITY:  # a boolean is none
        return priority
    raise UsageError(f"priority must be a whole number from 0 to {MAX_PRIORITY}, not {priority!r}")


def nominated_priority(service: str, given: int | None, *, default: int, is_honoured: bool) -> int:
    """Return the priority of a nomination for *service*.

    Args:
        service: The service; those of kip30 itself have no priorities.
        given: The priority that the caller gave; None: that of the setting.
        default: That of the setting ``plugin.priority``.
        is_honoured: Whether the setting ``plugin.operations`` is true.

    Raises:
        UsageError: *given* is no priority; or it is above 0 and would have no effect.
    """
    is_internal = service.startswith(INTERNAL)
    if given is None:
        priority, name = (0 if is_internal else default), "plugin.priority"
    else:
        priority, name = check_priority(given), "priority"
    if priority and is_internal:
        raise UsageError(f"priority is {priority}: candidates for {service!r} have none")
    if priority and not is_honoured:
        raise UsageError(f"{name} is {priority}: without plugin.operations = true it has no effect")
    return priority
