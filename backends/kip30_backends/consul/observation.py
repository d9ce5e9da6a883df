"""One observation, and what it has told."""

import threading
from collections.abc import Callable

from typing_extensions import override

from kip30.driver import Watch
from kip30.driver.records import Kind, Snapshot
from kip30_backends.consul.orders import Course
from kip30_backends.consul.records import check_whole, index_of, listed
from kip30_backends.consul.states import Content, Place
from kip30_backends.consul.wire import Answer

Sink = Callable[[Snapshot], None]

_UNTOLD = -1


class ConsulWatch(Watch):
    """One observation, and what it has told last."""

    def __init__(
        self, place: Place, course: Course, sink: Sink, forget: Callable[["ConsulWatch"], None]
    ) -> None:
        """Tell *sink* of *place*, whose *course* this holds; call *forget* in the end."""
        self.place = place
        self.content = Content({}, {})
        # The last answer about a set of keys, as it came and as it was understood.
        self._names: tuple[bytes, Content] | None = None
        self._course = course
        self._order = _UNTOLD
        self._sink = sink
        self._forget = forget
        self._closed = False
        self._lock = threading.RLock()

    @property
    def is_there(self) -> bool:
        """Say whether the last answer showed anything at the place."""
        return any(self.content)

    @property
    def is_absent(self) -> bool:
        """Say whether the last state it received shows nothing at the place."""
        return self._order != _UNTOLD and not self.is_there

    def understand(self, answer: Answer) -> tuple[int, Content]:
        """Return up to which write an answer speaks, and what it says is at the place.

        Consul answers the same set of keys after each update of a value: that is not read again.

        Raises:
            TroubleError: As for `kip30_backends.consul.records.found`.
        """
        check_whole(answer)
        with self._lock:
            if self._names is None or answer.body != self._names[0]:
                content = self.place.content(listed(answer))
                if self.place.target.kind is not Kind.NAMESPACE:
                    return index_of(answer), content
                self._names = answer.body, content
            return index_of(answer), self._names[1]

    def tell(self, order: int, content: Content) -> None:
        """Tell what was found, unless that is no news."""
        with self._lock:
            if order > self._order and not self._closed:
                self._sink(Snapshot(order, *content))
                self._order, self.content = order, content

    @override
    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._forget(self)
