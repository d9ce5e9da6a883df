"""A watch whose notifications cross a bad network."""

from collections.abc import Callable
from functools import partial
from typing import Any

from typing_extensions import override

from kip30.driver import ObserveDriver, Watch
from kip30.driver.kit.watch import Sink, WatchHandle
from kip30.driver.records import Snapshot, Target
from kip30.errors import Kip30Error
from kip30_conformance.simulation.model_requests import Requests
from kip30_conformance.simulation.present import simulation


class UnreliableWatch(WatchHandle):
    """Observes with a driver, and opens another watch after each break of its connection.

    The driver delivers the present state to each new watch, so no last state is missed.
    """

    def __init__(
        self,
        target: Target,
        sink: Sink,
        forget: Callable[[Any], None],
        driver: ObserveDriver,
        requests: Requests,
    ) -> None:
        """Observe nothing before `connect`.

        Args:
            target: The observed target.
            sink: Takes its states.
            forget: Called when this is closed.
            driver: Observes reliably.
            requests: Those of the client: notifications take the same way.
        """
        super().__init__(target, sink, forget)
        self._driver = driver
        self._link = requests.link
        self._reader = requests.reader
        self._last: Snapshot | None = None  # that was delivered
        # Counts connections that were made and that broke: states of an earlier one are lost.
        self._connection = 0
        self._watch: Watch | None = None

    def connect(self) -> None:
        """Observe once there is a connection."""
        self._link.connect(self._connected)

    @override
    def deliver(self, snapshot: Snapshot) -> bool:
        """Call the sink unless a later state was delivered, also with the same state again."""
        with self.lock:
            if snapshot is self._last and not self.is_closed:
                self._sink(snapshot)
                return True
            is_new = super().deliver(snapshot)
            self._last = snapshot if is_new else self._last
            return is_new

    @override
    def close(self) -> None:
        super().close()
        with self.lock:
            watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _connected(self) -> None:
        # An event does not wait for locks, as a driver may.
        simulation().spawn(self._link.process, "kip30-model-watch", self._observe)

    def _observe(self) -> None:
        with self.lock:
            former, self._watch = self._watch, None
        if former is not None:
            former.close()
        if self.is_closed:
            return
        self._connection += 1
        try:
            watch = self._driver.watch(self.target, partial(self._changed, self._connection))
        except Kip30Error:
            self._link.reconnect(self._connected)
            return
        if not self._keeps(watch):
            watch.close()

    def _keeps(self, watch: Watch) -> bool:
        """Keep *watch* for `close`; false if this was closed meanwhile."""
        with self.lock:
            if not self.is_closed:
                self._watch = watch
            return not self.is_closed

    def _changed(self, connection: int, state: Snapshot) -> None:
        """Send *state*; called on any thread of the driver, which must not wait here."""
        if connection != self._connection or self.is_closed:
            return
        if not self._link.notify(lambda: self._reader.arrive(partial(self.deliver, state))):
            self._connection += 1
            self._link.reconnect(self._connected)
