"""One order over all answers about a place, also over servers that came back empty.

Consul tells with each answer up to which write it speaks for *its* keys. That goes back when the
store lost its data, and when it forgets what was deleted long ago. Then another era begins for the
place, which is later than all of the one before.
"""

import threading
from typing import NamedTuple

_ERA = 64


class Mark(NamedTuple):
    """How far the answers about one place had come at some moment."""

    era: int = 0
    at: int = 0


class Orders:
    """Puts the answers about each place in order. Thread-safe."""

    def __init__(self) -> None:
        """Know no answer yet."""
        self._reached: dict[str, Mark] = {}
        self._lock = threading.Lock()

    def mark(self, place: str) -> Mark:
        """Return how far answers about *place* have come, to be noted before a request is sent."""
        return self._reached.get(place, Mark())

    def of(self, place: str, index: int, sent: Mark) -> int:
        """Return the order of an answer about *place*, given `mark` as it was when it was sent."""
        with self._lock:
            known = self._reached.get(place, Mark())
            era = sent.era if index >= sent.at else max(sent.era + 1, known.era)
            self._reached[place] = max(known, Mark(era, index))
        return (era << _ERA) + index
