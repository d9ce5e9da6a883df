"""One item that a runner holds, and the runs of the command for it, one after the other."""

import math
import time
from collections.abc import Callable

from kip30.runner.guard_handle import GuardHandle
from kip30.runner.guarded_run import Supervision
from kip30.runner.interrupts import Interrupts
from kip30.runner.pauses import Pauses
from kip30.runner.share_job import ItemCommand, ShareJob
from kip30.runner.share_protocols import HeldItem

_LONGEST_NAME = 60


class ItemRun:
    """One item, and the guard of its command while there is one. Not thread-safe.

    Attributes:
        share: The item.
        guard: The guard from the start of the command until `close`; None without a command.
        due_at: When the command may be started, by `time.monotonic`; infinite while it runs, and
            if it is not to run again. Only this class writes it.
    """

    def __init__(self, share: HeldItem, job: ShareJob, interrupts: Interrupts) -> None:
        """Be due at once."""
        self.share: HeldItem = share
        self.guard: GuardHandle | None = None
        self.due_at: float = 0.0
        self._job = job
        self._interrupts = interrupts
        self._supervision: Supervision | None = None
        self._pauses = Pauses()
        self._started_at = 0.0

    @property
    def name(self) -> str:
        """The item as it is shown: in one line, and not long."""
        (text,) = self.share.items
        return f"{text if text.isprintable() else ascii(text):.{_LONGEST_NAME}}"

    def start(self, take_guard: Callable[[], GuardHandle], shared: int | None) -> bool:
        """Take a guard and let it start the command; false if the item has ended.

        Args:
            take_guard: Returns a guard, which is this item's from then on.
            shared: A descriptor that keeps the lease, for the guard.

        Raises:
            UsageError: The item cannot be passed to a command. Nothing was started.
            OSError: The guard cannot be started. Nothing was started.
        """
        self._started_at, self.due_at = time.monotonic(), math.inf
        command = ItemCommand(self._job, self.share)
        guard = self.guard = take_guard()
        self._supervision = Supervision(
            self.share, guard, self._interrupts, wanted_back=self.share.wanted_back
        )
        has_started = False
        try:
            has_started = self._supervision.start(command, shared)
        finally:
            if not has_started:
                self.close()
        return has_started

    def is_starting(self) -> bool:
        """Return whether the guard has been started, and has not started the command yet."""
        return self.guard is not None and not self.guard.command_pid

    def look(self, *, ends: bool) -> None:
        """Inform the guard, as `Supervision.look`; if it *ends*, let the command end, too."""
        if self._supervision is not None:
            if ends:
                self._supervision.end()
            self._supervision.look()

    def report(self) -> tuple[str, int] | None:
        """Return the report of the guard; None if it died without one. `close` is due then."""
        return None if self.guard is None else self.guard.report()

    def guard_end(self) -> str:
        """Return what ended the guard, in words, once it has died without a report."""
        return "there is no guard" if self.guard is None else self.guard.end()

    def pause(self) -> float:
        """Be due after the next pause; return how long that is, in seconds."""
        now = time.monotonic()
        seconds = self._pauses.after(now - self._started_at)
        self.due_at = now + seconds
        return seconds

    def has_ended(self) -> bool:
        """Return whether the item is to be given up, as far as is known without the clock.

        That is enough while no command is running.
        """
        return self.share.lost.is_set() or self.share.wanted_back.is_set()

    def close(self) -> None:
        """End the guard and its command, if there is one, and wait for it. Idempotent."""
        if self.guard is not None:
            self.guard.close()
        self.guard = self._supervision = None
