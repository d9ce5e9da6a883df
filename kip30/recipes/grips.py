"""A caller's hold on a lock or semaphore, until it is released or lost."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Self

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.errors import (
    ClosedError,
    DefiniteError,
    GripLostError,
    NotMemberError,
    OutcomeUnknownError,
)
from kip30.runtime.candidacy import Leadership
from kip30.runtime.leased import LeaseBound
from kip30.runtime.term_work import TermWork, ThreadOrTask, WorkInProgress, present_runner

Release = Callable[[], Future[None]]
"""Releases what is held, locally at once; the future ends when the store has confirmed it."""


_UNCONFIRMED = (
    "it is released here, but the store has not confirmed it: others acquire it once the store"
    " knows, or the session is over there"
)


class Grip(Closeable):
    """A hold, which ends once and cannot be regained; leaving the ``with`` block releases it.

    Mutual exclusion rests on clocks that run at the same rate, within the lease margin.
    `is_valid` cannot stop the process from pausing right after its answer.

    Attributes:
        held: What it depends on: a leadership, or the membership in a line.
    """

    def __init__(
        self,
        held: LeaseBound,
        token: int,
        release: Release,
        seconds: float,
        *,
        progress: WorkInProgress,
    ) -> None:
        """Use the acquiring method of a recipe. A release waits up to *seconds* for the store."""
        self.held: LeaseBound = held
        self._progress = progress
        # The block of the ``with``, for which the recipe's own close waits.
        self._work: TermWork | None = None
        self._token = token
        self._release = release
        self._seconds = seconds

    @property
    def token(self) -> int:
        """The token: greater than that of every earlier grip that excluded this one.

        Grips that may be held together, as those of readers, have no promised order.
        """
        return self._token

    @property
    def lost(self) -> threading.Event:
        """An event that is set once the grip has ended, by release or loss."""
        return self.held.lost

    @property
    def deadline(self) -> float:
        """The time at which it ends unless renewed, in seconds on the lease's clock."""
        return self.held.deadline

    def is_valid(self) -> bool:
        """Return whether it is still held, by the lease clock and at this moment."""
        return self.held.is_valid()

    def check(self) -> None:
        """Return if it is still held.

        Raises:
            GripLostError: It was released, or lost with the session.
        """
        try:
            self.held.check()
        except DefiniteError as error:
            raise GripLostError(f"it is no longer held: {error}") from error

    def release(self) -> None:
        """Release it: locally at once, and in the store when this returns. Idempotent.

        Does nothing in a forked child: the parent still holds it.

        Raises:
            OutcomeUnknownError: The store did not confirm it by the operation timeout. The
                release is sent again until it answers; at the latest the session ends by itself.
        """
        released = self.begin_release()
        if not wait([released], self._seconds).done:
            raise OutcomeUnknownError(_UNCONFIRMED)
        with suppress(ClosedError, NotMemberError):  # it has ended, and all that it held with it
            released.result()

    def begin_release(self) -> Future[None]:
        """Release it, locally at once; the future ends when the store has confirmed it."""
        return self._release()

    @override
    def close(self) -> None:
        """Release it; a release that the store has not confirmed is not an error here."""
        with suppress(OutcomeUnknownError):
            self.release()

    @override
    def __enter__(self) -> Self:
        """Return the grip itself."""
        self.enter_block(present_runner())
        return self

    @override
    def __exit__(self, *_error: object) -> None:
        """Release it."""
        self.leave_block()
        super().__exit__()

    def enter_block(self, runner: ThreadOrTask) -> None:
        """Note that *runner* works with it, until `leave_block`."""
        self._work = self._progress.begin(self.held, runner)

    def leave_block(self) -> None:
        """Note that no block works with it any longer."""
        if self._work is not None:
            self._progress.end(self._work)

    @override
    def __repr__(self) -> str:
        state = "held" if self.is_valid() else "over"
        return f"<{type(self).__name__} with token {self.token}, {state}>"


class FencedGrip(Grip):
    """A grip that can be the ``fence=`` of a write, which the store refuses once it has ended.

    Attributes:
        service: The service whose epoch is the fence.
    """

    def __init__(
        self, term: Leadership, release: Release, seconds: float, *, progress: WorkInProgress
    ) -> None:
        """Hold the lock by *term*."""
        super().__init__(term, term.epoch, release, seconds, progress=progress)
        self.service: str = term.service

    @property
    def epoch(self) -> int:
        """The fencing token; the same as `token`."""
        return self.token
