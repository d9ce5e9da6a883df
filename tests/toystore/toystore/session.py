"""The session of one backend: the lease its claims share, and how requests are answered."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

from kip30.driver import Context
from kip30.driver.lease import Lease
from kip30.driver.records import Claim, Target
from kip30.errors import ClosedError
from toystore.errors import translate
from toystore.memory import Memory

T = TypeVar("T")

_RENEWALS_PER_TIMEOUT = 3


class Session:
    """Renews a lease until closed; when that is lost, the next claim gets another one."""

    def __init__(self, context: Context, memory: Memory) -> None:
        self._context = context
        self._memory = memory
        self._closing = threading.Condition()
        self._is_closed = False
        self._lease = context.lease(sent_at=context.clock.now())
        self._renewal = threading.Thread(target=self._renew, name="toy-renewal", daemon=True)
        self._renewal.start()

    def answer(self, work: Callable[[], T]) -> Future[T]:
        """Do *work* at once, with the store to itself, and return its outcome."""
        future: Future[T] = Future()
        try:
            with self._memory.lock:
                self._check()
                result = work()
        except Exception as error:  # noqa: BLE001  a future carries whatever it is
            future.set_exception(translate(error))
        else:
            future.set_result(result)
        return future

    def lease(self) -> Lease:
        """Return the lease for a claim that is being made."""
        if self._lease.expire():
            self._memory.expire(self._lease)
            self._lease = self._context.lease(sent_at=self._context.clock.now())
        return self._lease

    def holds(self, target: Target, claim: Claim) -> bool:
        """Say whether the store still has what *claim* put there."""
        record = self._memory.table(target).get(claim.name)
        return record is not None and record.entry.nonce == claim.entry.nonce

    def release(self, target: Target, claim: Claim) -> Future[None]:
        """Remove what *claim* put there, unless it is gone or another one's."""
        return self.answer(
            lambda: self._memory.remove(target) if self.holds(target, claim) else None
        )

    def expire(self) -> None:
        """End the session as a store does that has not heard of its client for too long."""
        with self._memory.lock:
            self._memory.expire(self._lease)
            self._lease.end("the store ended the session")

    def close(self) -> None:
        """End all claims, and the thread."""
        with self._closing:
            self._is_closed = True
            self._closing.notify_all()
        self._renewal.join()
        self._memory.expire(self._lease)

    def _check(self) -> None:
        if self._is_closed:
            raise ClosedError("the toy store is closed")

    def _renew(self) -> None:
        while self._pause():
            with self._memory.lock:
                if not self._lease.renewed(sent_at=self._context.clock.now()):
                    self._memory.expire(self._lease)

    def _pause(self) -> bool:
        """Wait for the next renewal; say whether there is one."""
        with self._closing:
            if not self._is_closed:
                interval = self._context.session_timeout_seconds / _RENEWALS_PER_TIMEOUT
                self._context.clock.wait(self._closing, interval)
            return not self._is_closed
