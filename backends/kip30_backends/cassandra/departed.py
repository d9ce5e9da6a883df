"""Who was seen to have gone, and may be seen again although nobody believes in it any more.

A conditional write judges what has expired by the time at which it began. So a renewal that a node
held up can bring back a row which a read has missed already. By then its holder has given it up:
the lease ends before the row can be missed, and a lease that has ended is not renewed again.

A row that is back has the nonce and the version that were missed. A nonce alone does not tell: who
does not know what became of a claim claims again with the same one, and gets a greater version. Nor
does a version: in a cluster that lost everything they begin again.
"""

from collections.abc import Mapping

from kip30.driver.clock import Clock
from kip30.driver.records import Entry, Version

_LASTS = 2.0
_MORE_SECONDS = 1.0
"""For how many session timeouts, and seconds more, a row can be back at most, with time to spare:
it has its old end, in whole seconds, plus less than one timeout."""

_Row = tuple[str, Version]
"""The nonce and the version, which only a row that is back has in common with one that had gone."""


class Departed:
    """Leaves out who is back from the dead. For one observer."""

    def __init__(self, clock: Clock, timeout_seconds: float) -> None:
        """Have seen nobody; sessions last *timeout_seconds*."""
        self._clock = clock
        self._seconds = _LASTS * timeout_seconds + _MORE_SECONDS
        self._there: set[_Row] = set()
        self._until: dict[_Row, float] = {}

    def left_out(self, entries: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """Return *entries*, the newest state, without those that had gone a short while ago."""
        now = self._clock.now()
        there = {_row(entry) for entry in entries.values()}
        until = {row: end for row, end in self._until.items() if end > now}
        until.update(dict.fromkeys(self._there - there - until.keys(), now + self._seconds))
        self._there, self._until = there, until
        return {name: entry for name, entry in entries.items() if _row(entry) not in until}


def _row(entry: Entry) -> _Row:
    return entry.nonce, entry.version
