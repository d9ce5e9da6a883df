"""The leases of a client: each expires by the local clock, which notifies listeners."""

import logging
import threading
from collections.abc import Callable
from typing import NamedTuple

from kip30.driver.lease import LATE, Lease
from kip30.runtime.dispatcher import Delivery, Dispatcher, Task
from kip30.runtime.store_metrics import StoreMetrics

log: logging.Logger = logging.getLogger("kip30.sessions")
"""Its messages and fields are in `docs/logging.md`."""


class SessionLost(NamedTuple):
    """A lease of this client ended although it was not closed.

    Members re-join and candidates are nominated again automatically.

    Attributes:
        reason: Why, in words; with the error of the last renewal if renewals failed.
    """

    reason: str


SessionListener = Callable[[SessionLost], object]


class LeaseTracker:
    """All leases of one connection, and the listeners for their loss."""

    def __init__(
        self, dispatcher: Dispatcher, store: str, metrics: StoreMetrics | None = None
    ) -> None:
        """Use *dispatcher* for timers and callbacks, and name *store* in the log."""
        self._metrics = metrics
        self._dispatcher = dispatcher
        self._store = store
        self._leases: dict[Lease, Task] = {}
        self._listeners: dict[SessionListener, Delivery[SessionLost]] = {}
        self._lock = threading.Lock()
        self._closed = False
        # Whether the newest lease was lost. Written under the lock.
        self._is_lost = False

    def adopt(self, lease: Lease) -> None:
        """End *lease* by its own clock, and notify listeners of its loss."""
        with self._lock:
            if lease in self._leases or lease.end_reason is not None or self._closed:
                return
            task = self._dispatcher.task(lambda: self._look_at(lease, task), "lease clock")
            self._leases[lease] = task
            was_lost, self._is_lost = self._is_lost, False
        if self._metrics is not None:
            lease.on_renewal = self._metrics.renewed
        task.wake_at(lease.deadline)
        lease.on_end(lambda: self._ended(lease))
        if was_lost:
            extra = {"kip30_event": "replaced", "kip30_store": self._store}
            log.info("a new session replaces the lost one", extra=extra)

    def add_listener(self, listener: SessionListener) -> None:
        """Call *listener* whenever a lease is lost; adding it twice counts once."""
        with self._lock:
            delivery = Delivery(self._dispatcher, listener, "session listener", kind="session")
            self._listeners.setdefault(listener, delivery)

    def remove_listener(self, listener: SessionListener) -> None:
        """Start no further call of *listener*; do nothing if it is not there."""
        with self._lock:
            delivery = self._listeners.pop(listener, None)
        if delivery is not None:
            delivery.close()

    def remaining_seconds(self) -> float | None:
        """Return how long all leases last unless renewed, 0 if one was lost and not replaced.

        None if nothing was claimed yet.
        """
        with self._lock:
            leases, is_lost = list(self._leases), self._is_lost
        if not leases:
            return 0.0 if is_lost else None
        return min(lease.remaining_seconds() for lease in leases)

    def close(self) -> None:
        """Send no further notifications."""
        with self._lock:
            self._closed = True

    def _look_at(self, lease: Lease, task: Task) -> None:
        if not lease.expire():
            task.wake_at(lease.deadline)

    def _ended(self, lease: Lease) -> None:
        with self._lock:
            task = self._leases.pop(lease, None)
            is_closed = self._closed
            self._is_lost = True
            listeners = [] if is_closed else list(self._listeners.values())
        if task is not None:
            task.close()
        if is_closed:
            return
        reason = lease.end_reason or LATE
        if self._metrics is not None:
            self._metrics.lost(reason)
        fields = {
            "kip30_event": "lost",
            "kip30_store": self._store,
            "kip30_reason": reason,
            "kip30_renewal_error": lease.renewal_error,
        }
        log.warning("session lost: %s", reason, extra=fields)
        for delivery in listeners:
            delivery.send(SessionLost(reason))
