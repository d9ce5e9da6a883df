"""The session of one backend: the lease its claims share, and how requests are answered."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from kip30.driver import Context
from kip30.driver.kit.futures import Completed, failed
from kip30.driver.kit.gate import Gate
from kip30.driver.kit.session import CurrentSession, Renewal
from kip30.driver.kit.timer import Timer
from kip30.driver.lease import Lease
from kip30.driver.records import Claim, Target
from toystore.errors import translate
from toystore.memory import Memory

T = TypeVar("T")


class Session(NamedTuple):
    """A session, which in this store is nothing but its lease."""

    lease: Lease


class Sessions:
    """Renews a session until closed; when it is lost, the next claim gets another one."""

    def __init__(self, context: Context, memory: Memory) -> None:
        self.gate = Gate()
        self._memory = memory
        self._seconds = context.operation_timeout_seconds
        self._timer = Timer("toy-timer")
        renewal: Renewal[Session] = Renewal(
            context.clock, self._timer, lambda *_: Completed(result=True)
        )
        self._current: CurrentSession[Session] = CurrentSession(
            open_one=lambda _: Session(context.lease(sent_at=context.clock.now())),
            end=lambda session, _: memory.expire(session.lease),
            adopted=lambda session: renewal.begin(session, self._current),
            closing_seconds=self._seconds,
        )

    def answer(self, work: Callable[[], T]) -> Future[T]:
        """Do *work* at once, with the store to itself, and return its outcome."""
        try:
            with self._memory.lock:
                self.gate.check()
                return Completed(work())
        except Exception as error:  # noqa: BLE001  a future carries any error
            return failed(translate(error))

    def lease(self) -> Lease:
        """Return the lease for a claim that is being made."""
        return self._current.get(time.monotonic() + self._seconds).lease

    def holds(self, target: Target, claim: Claim) -> bool:
        """Return whether the store still has what *claim* put there."""
        record = self._memory.table(target).get(claim.name)
        return record is not None and record.entry.version == claim.entry.version

    def release(self, target: Target, claim: Claim) -> Future[None]:
        """Remove what *claim* put there, unless it is gone or another claim's."""
        return self.answer(
            lambda: self._memory.remove(target) if self.holds(target, claim) else None
        )

    def expire_session(self) -> None:
        """End the session, as a store does that has not heard from its client for too long.

        For tests. Clients in the same process notice at once.
        """
        session = self._current.known()
        if session is not None:
            self._memory.expire(session.lease)
            self._current.mark_lost(session)

    def close(self) -> None:
        """End all claims, and the thread."""
        self.gate.close()
        self._current.close()
        self._timer.stop()
