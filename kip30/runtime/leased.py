"""Shared code of a leader and a member: both last until a lease ends.

Validity is judged by the lease clock at the moment of the call, never by an event that may come
late. The process can still pause right after the answer; only a fence protects against that.
"""

import math
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ClassVar

from kip30.driver.kit.futures import succeed
from kip30.driver.lease import Lease
from kip30.driver.records import Claim
from kip30.errors import DefiniteError


class LeaseBound:
    """One uninterrupted holding of an id or a service. It ends once and does not resume.

    Attributes:
        lost: Set once this has ended, for threads that wait for it.
        held_until: When it is released in the store even if work still goes on under it, in seconds
            on the clock of the lease; infinite before it has ended. See `kip30.runtime.term_work`.
    """

    lost_error: ClassVar[type[DefiniteError]] = DefiniteError

    def __init__(
        self,
        claim: Claim,
        data: bytes,
        wake: Callable[[], None],
        make_future: Callable[[], Future[None]],
    ) -> None:
        """Hold *claim* as long as its lease lasts; call *wake* when it ends.

        *make_future* makes the future that `over` returns.
        """
        self.claim = claim
        self.data = data
        self.lost: threading.Event = threading.Event()
        self.held_until: float = math.inf
        # Why this has ended. Set once, under _ending.
        self._reason: str | None = None
        # Made for the first caller of `over`, under _ending: most callers never use it.
        self._over: Future[None] | None = None
        self._ending = threading.Lock()
        self._make_future = make_future
        self._wake = wake
        claim.lease.on_end(self._lease_ended)

    @property
    def over(self) -> Future[None]:
        """Done once this has ended; its callbacks run as those of `Storage.fetch` do."""
        with self._ending:
            if self._over is None:
                self._over = self._make_future()
            over, has_ended = self._over, self._reason is not None
        if has_ended:
            succeed(over, None)
        return over

    @property
    def lease(self) -> Lease:
        """The lease this depends on."""
        return self.claim.lease

    @property
    def timeout_seconds(self) -> float:
        """The time that the store keeps the lease without a renewal."""
        return self.lease.timeout_seconds

    @property
    def deadline(self) -> float:
        """The time at which this ends unless renewed, in seconds on the lease's clock."""
        return self.lease.deadline

    @property
    def ending_reason(self) -> str:
        """Reason why this has ended; while it holds, why it will if it is not renewed."""
        return self._reason or self.lease.end_reason or self.lease.lateness

    def is_valid(self) -> bool:
        """Return whether this still holds now, by the clock."""
        return self._reason is None and self.lease.is_valid()

    def remaining_seconds(self) -> float:
        """Return how long this holds without another renewal; 0 once it has ended."""
        return self.lease.remaining_seconds() if self._reason is None else 0.0

    def check(self) -> None:
        """Return if this still holds.

        Raises:
            DefiniteError: It has ended (`LeadershipLostError` or `NotMemberError`).
        """
        if not self.is_valid():
            raise self.lost_error(f"{self!r} has ended: {self.ending_reason}")

    def end(self, reason: str) -> None:
        """Stop claiming, locally and at once; the caller must release the claim in the store."""
        # First: a caller that sees that it has ended asks until when its release is delayed.
        self.held_until = min(self.held_until, self.lease.store_deadline())
        with self._ending:
            self._reason = self._reason or reason
            over = self._over
        self.lease.forget(self._lease_ended)
        self.lost.set()
        if over is not None:
            succeed(over, None)

    def on_work_begun(self) -> None:
        """Keep the session, if it is lost, from being ended in the store."""
        self.lease.begin_use()

    def on_work_done(self) -> None:
        """Wake the task that releases it: no work is left under it."""
        self.lease.end_use()
        if self._reason is not None:
            self._wake()

    def _lease_ended(self) -> None:
        self.end(self.ending_reason)
        self._wake()
