"""Records that this kip30 cannot read: left out of every list and change, and logged once each.

They are another program's, a newer kip30's or damaged; a rolling upgrade makes some. One of them
must not hide all others, nor fill the log of every client that reads the same place.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from itertools import islice

from kip30.driver.records import Kind, Target

log: logging.Logger = logging.getLogger(__name__)

_PLACES = 4096
"""Number of namespaces, groups and services for which the log remembers its lines."""
_EACH = 100
"""Number of records of each that are logged: a tree of another program may have any number."""

CONTAINER = {Kind.VALUE: Kind.NAMESPACE, Kind.MEMBER: Kind.GROUP}
"""Identifies a record and its place: it is logged once, whichever way it is read."""


class UnreadableLog:
    """The unreadable records that one connection has logged. Thread-safe."""

    def __init__(self) -> None:
        """Start with nothing logged."""
        # By place, the most recently used last: the reason logged for each name.
        self._logged: OrderedDict[tuple[Kind, str], dict[str, str]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, target: Target, unreadable: Mapping[str, str]) -> None:
        """Log each of *unreadable*, a reason by name, unless it was logged for that reason."""
        if not unreadable:
            return
        with self._lock:
            kind = CONTAINER.get(target.kind, target.kind)
            new, is_full = self._take_new((kind, target.scope), unreadable)
        for name, reason in new.items():
            log.warning(
                "%r in %s %r is left out because it cannot be read: %s",
                *(name, kind.value, target.scope, reason),
            )
        if is_full:
            log.warning(
                "%s %r had %d records that cannot be read: further ones are not logged",
                *(kind.value, target.scope, _EACH),
            )

    def _take_new(
        self, place: tuple[Kind, str], unreadable: Mapping[str, str]
    ) -> tuple[Mapping[str, str], bool]:
        """Return what to log, and whether the place thereby reaches its limit."""
        known = self._logged.setdefault(place, {})
        self._logged.move_to_end(place)
        if len(self._logged) > _PLACES:
            self._logged.popitem(last=False)
        room = _EACH - len(known)
        if room <= 0:
            return {}, False
        new = (item for item in unreadable.items() if known.get(item[0]) != item[1])
        taken = dict(islice(new, room))
        known |= taken
        return taken, len(known) >= _EACH
