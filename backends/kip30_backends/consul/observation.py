"""One observation, and what it has told."""

import logging
import threading
from collections.abc import Callable, Sequence

from typing_extensions import override

from kip30.driver import Watch
from kip30.records import Snapshot
from kip30_backends.consul.orders import Course
from kip30_backends.consul.records import Record
from kip30_backends.consul.states import Place

Sink = Callable[[Snapshot], None]

_log = logging.getLogger(__name__)

_UNTOLD = -1


class ConsulWatch(Watch):
    """One observation, and the order it has told last."""

    def __init__(
        self, place: Place, course: Course, sink: Sink, forget: Callable[["ConsulWatch"], None]
    ) -> None:
        """Tell *sink* of *place*, whose *course* this holds; call *forget* in the end."""
        self.place = place
        self._course = course
        self._order = _UNTOLD
        self._sink = sink
        self._forget = forget
        self._closed = False
        self._lock = threading.RLock()

    def tell(self, order: int, records: Sequence[Record]) -> None:
        """Tell what was found, unless that is no news."""
        with self._lock:
            if order > self._order and not self._closed:
                self._sink(Snapshot(order, self.place.entries(records, self._leave_out)))
                self._order = order

    @override
    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._forget(self)

    def _leave_out(self, error: Exception) -> None:
        _log.warning("somebody else writes to %s: %s", self.place.target, error)
