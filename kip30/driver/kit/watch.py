"""The handle of one observation, and a driver that reads and watches by functions."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from typing_extensions import override

from kip30.driver.contract import ObserveDriver, Watch
from kip30.driver.records import Snapshot, Target

Sink = Callable[[Snapshot], None]

NOTHING_DELIVERED = -1
"""Less than every order: that of a watch that has delivered nothing yet."""


class WatchHandle(Watch):
    """Delivers the states of one target in order, and none once it is closed. Thread-safe.

    A store that keeps more for each of its watches derives from this; what it keeps is guarded by
    `lock`, which is held while the sink is called, so that `close` returns only after that.

    Attributes:
        target: What is observed.
        order: The order of the last state that was delivered, or `NOTHING_DELIVERED`.
        is_closed: Whether it was closed. It never goes back.
        lock: Held while a state is delivered. The sink may close the watch, so it is reentrant.
    """

    def __init__(self, target: Target, sink: Sink, forget: Callable[[Any], None]) -> None:
        """Deliver states of *target* to *sink*; call *forget* when this is closed."""
        self.target = target
        self.order: int = NOTHING_DELIVERED
        self.is_closed: bool = False
        self.lock: threading.RLock = threading.RLock()
        self._sink = sink
        self._forget = forget

    def deliver(self, snapshot: Snapshot) -> bool:
        """Call the sink with *snapshot*, unless this is closed or a state as new was delivered.

        An exception of the sink is raised here, and the state does not count as delivered.

        Returns:
            Whether the sink was called.
        """
        with self.lock:
            if self.is_closed or snapshot.order <= self.order:
                return False
            self._sink(snapshot)
            # Last: a state that the sink raised at is delivered again by the store's next look.
            self.order = snapshot.order
            return True

    @override
    def close(self) -> None:
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
        self._forget(self)


class Observe(ObserveDriver):
    """Reads and watches whole targets by two functions of the store."""

    def __init__(
        self,
        read: Callable[[Target], Future[Snapshot]],
        watch: Callable[[Target, Sink], Watch],
    ) -> None:
        """Read a target once by *read*, linearizably, and observe it by *watch*."""
        self._read = read
        self._watch = watch

    @override
    def snapshot(self, target: Target) -> Future[Snapshot]:
        return self._read(target)

    @override
    def watch(self, target: Target, sink: Sink) -> Watch:
        return self._watch(target, sink)
