"""The lease clock: the moment until which a claim may be relied on.

A driver reports every acknowledged renewal with the time taken *before it was
sent*; the end of the store's own timeout, less a margin, is then a moment that
the store cannot have reached earlier. `Lease` is the only judge of validity in
kip30. It does not stop a process from pausing between asking and acting: data that a former holder
must not write is written with a fence.
"""

import math
import os
import threading
import time
from collections.abc import Callable

from kip30.driver.clock import Clock

LATE = "not renewed in time"
"""The reason for an end at the deadline; with the error of the last renewal, if it failed."""


class Lease:
    """A lease that a store ties claims to, as seen by its holder. Thread-safe.

    Validity only ever goes from true to false: a renewal that is acknowledged
    after the deadline ends the lease instead of reviving it.
    """

    def __init__(
        self, clock: Clock, *, sent_at: float, timeout_seconds: float, margin_seconds: float
    ) -> None:
        """Begin a lease that the store granted.

        Args:
            clock: The clock *sent_at* was read from.
            sent_at: The moment before the request for the lease was sent, in seconds.
            timeout_seconds: How long the store keeps the lease without renewal.
            margin_seconds: How much earlier the holder stops believing in it.
        """
        self.timeout_seconds: float = timeout_seconds
        # Called with the time that each acknowledged renewal took. Set once, if at all.
        self.on_renewal: Callable[[float], object] | None = None
        self._clock = clock
        self._span = timeout_seconds - margin_seconds
        # All of these are written under the lock.
        # It moves on with renewals, and back only if a store grants less; not once it has passed.
        self._deadline = sent_at + self._span
        # Why the last renewal failed; empty if it did not.
        self._trouble = ""
        # Why the lease has ended, and when. Set once.
        self._ended: str | None = None
        self._ended_at = math.inf
        # The callbacks for that moment, in order; a dictionary so that one can be removed.
        self._callbacks: dict[Callable[[], None], None] = {}
        # How many terms have work that runs under them; see `is_in_use`.
        self._uses = 0
        self._lock = threading.Lock()
        self._use_ended = threading.Condition(self._lock)
        self._pid = os.getpid()

    @property
    def deadline(self) -> float:
        """The moment on the lease's clock at which it ends unless renewed, in seconds."""
        return self._deadline

    @property
    def renewed_at(self) -> float:
        """The moment on the lease's clock from which the deadline counts, in seconds.

        The last acknowledged renewal was sent then, or later.
        """
        return self._deadline - self._span

    @property
    def end_reason(self) -> str | None:
        """Reason why the lease has ended, or None while that is not known."""
        return self._ended

    @property
    def renewal_error(self) -> str:
        """Error of the last renewal; empty if that succeeded, or none was sent."""
        return self._trouble

    @property
    def lateness(self) -> str:
        """Reason that `end_reason` gives for an end of the lease at its deadline."""
        return f"{LATE}: {self._trouble}" if self._trouble else LATE

    def is_valid(self) -> bool:
        """Return whether the lease holds: until it ends the store cannot grant it to others.

        In a forked child it is false: the lease is the parent's.
        """
        if os.getpid() != self._pid:
            return False
        with self._lock:
            return self._ended is None and self._clock.now() < self._deadline

    def remaining_seconds(self) -> float:
        """Return the time left until the deadline; 0 once the lease has ended."""
        return max(0.0, self._deadline - self._clock.now()) if self.is_valid() else 0.0

    def store_deadline(self) -> float:
        """Return when the store itself ends the lease, at the latest, unless it is renewed.

        That is a margin after the deadline. Once the lease has ended, it is no later than a margin
        from now.
        """
        is_valid = self.is_valid()
        with self._lock:
            return self._kept_until(math.inf if is_valid else self._clock.now())

    def begin_use(self) -> None:
        """Note that work runs under a term of this lease, until `end_use`."""
        with self._lock:
            self._uses += 1

    def end_use(self) -> None:
        """Note that such work has ended."""
        with self._lock:
            self._uses -= 1
            self._use_ended.notify_all()

    def is_in_use(self) -> bool:
        """Return whether work runs under a term of this lease, which the store still keeps.

        A driver whose session was not renewed in time does not end it in the store before that is
        false, so that no other candidate leads while the work ends. It is false from
        `store_deadline` on.
        """
        with self._lock:
            return self._seconds_in_use() > 0

    def wait_unused(self, until: float) -> bool:
        """Wait until `is_in_use` is false; return whether it is by *until*.

        That is a time of `time.monotonic`, as the deadlines of requests are.
        """
        with self._lock:
            while (left := min(self._seconds_in_use(), until - time.monotonic())) > 0:
                self._clock.wait(self._use_ended, left)
            return self._seconds_in_use() <= 0

    def record_renewal(self, sent_at: float) -> bool:
        """Record an acknowledged renewal; return False if the lease had already ended.

        It was sent at *sent_at*, and is acknowledged now. A driver whose renewals date the lease
        from another time calls `extend` and `measure_renewal`.
        """
        is_valid = self.extend(sent_at)
        if is_valid:
            self.measure_renewal(sent_at)
        return is_valid

    def extend(self, sent_at: float) -> bool:
        """Count from *sent_at*, if that is later; return False if the lease had already ended."""
        with self._lock:
            is_valid = self._ended is None and self._clock.now() < self._deadline
            if is_valid:
                self._deadline = max(self._deadline, sent_at + self._span)
                self._trouble = ""
        if not is_valid:
            self.expire()
        return is_valid

    def measure_renewal(self, sent_at: float) -> None:
        """Note that a renewal that was sent at *sent_at* is acknowledged now."""
        if self.on_renewal is not None:
            self.on_renewal(self._clock.now() - sent_at)

    def renewal_failed(self, error: BaseException) -> None:
        """Record why a renewal failed: the reason of the end if no later one succeeds."""
        self._trouble = str(error) or type(error).__name__

    def regranted(self, *, sent_at: float, timeout_seconds: float) -> None:
        """Note that the store keeps the lease for another time since a request sent at *sent_at*.

        The next renewals count with the new time. A shorter one moves the deadline back, because
        the store may already count with it; a longer one does not extend the lease by itself.
        """
        with self._lock:
            self._span *= timeout_seconds / self.timeout_seconds
            self.timeout_seconds = timeout_seconds
            self._deadline = min(self._deadline, sent_at + self._span)

    def expire(self) -> bool:
        """End the lease if its deadline has passed; return whether it has ended."""
        if self.is_valid():
            return False
        self.end(LATE)
        return True

    def end(self, reason: str) -> None:
        """End the lease for good; the first *reason* stays.

        `LATE` is completed by the error of the last renewal.
        """
        with self._lock:
            if self._ended is not None:
                return
            self._ended = self.lateness if reason == LATE else reason
            self._ended_at = self._clock.now()
            callbacks, self._callbacks = self._callbacks, {}
        # Without the lock, because a callback may look at the lease, or take locks of its own.
        for callback in callbacks:
            callback()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Call *callback* once when the lease ends; at once if it has ended.

        It is called on the thread that ends the lease, so it must be quick and must not raise.
        """
        with self._lock:
            if self._ended is None:
                self._callbacks[callback] = None
                return
        callback()

    def forget(self, callback: Callable[[], None]) -> None:
        """Undo `on_end`; nothing happens if *callback* is not there."""
        with self._lock:
            self._callbacks.pop(callback, None)

    def _seconds_in_use(self) -> float:
        """Return for how long work may still use the lease; under the lock."""
        if not self._uses:
            return 0.0
        return self._kept_until(self._clock.now()) - self._clock.now()

    def _kept_until(self, known_at: float) -> float:
        """Return when the store ends the lease, whose end here was *known_at*; under the lock."""
        margin = self.timeout_seconds - self._span
        return min(self._deadline + margin, min(known_at, self._ended_at) + margin)
