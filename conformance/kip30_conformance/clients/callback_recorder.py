"""A callback that records its events."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from kip30 import ValueChange, Version
from kip30_conformance.polling import eventually

E = TypeVar("E")


class Recorder(Generic[E]):
    """Pass it wherever kip30 takes a callback. Thread-safe."""

    def __init__(self, then: Callable[[E], object] | None = None) -> None:
        """Call *then* with every event, after it was kept."""
        self._events: list[E] = []
        self._then = then
        self._lock = threading.Lock()

    def __call__(self, event: E) -> None:
        """Keep *event*."""
        with self._lock:
            self._events.append(event)
        if self._then is not None:
            self._then(event)

    @property
    def events(self) -> list[E]:
        """The events so far, the oldest first."""
        with self._lock:
            return list(self._events)

    def expect(self, wanted: Callable[[E], object], *, within: float = 10.0) -> E:
        """Return the first event for which *wanted* is true; wait for it for *within* seconds."""
        found = eventually(
            lambda: [event for event in self.events if wanted(event)],
            within=within,
            what="awaited event",
        )
        return found[0]

    def expect_count(self, count: int, *, within: float = 10.0) -> list[E]:
        """Return all events once there are *count* of them."""
        eventually(lambda: len(self.events) >= count, within=within, what=f"{count} events")
        return self.events


class ValueRecorder(Recorder[ValueChange[str]]):
    """A recorder for a value listener."""

    def expect_version(self, version: Version, *, within: float = 10.0) -> ValueChange[str]:
        """Return the event of *version*; wait for it for *within* seconds."""
        return self.expect(lambda event: event.version == version, within=within)
