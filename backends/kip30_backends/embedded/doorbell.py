"""Hearing of other processes' changes: by inotify, or by looking often.

A writer rings *after* its commit, for the bytes of a commit can be seen in the
log before the commit can be read. It may die in between, so who listens also
looks from time to time.
"""

import os
import select
from abc import ABC, abstractmethod
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from typing_extensions import override

from kip30.errors import ConfigError
from kip30_backends.embedded import inotify
from kip30_backends.embedded.errors import raised_by_program

_LOOK_ANYWAY = 0.25


class Doorbell:
    """What writers ring: one byte of a file, written again."""

    def __init__(self, file: Path) -> None:
        """Ring by *file*."""
        self._descriptor = os.open(file, os.O_WRONLY | os.O_NOFOLLOW)

    def ring(self) -> None:
        """Tell every listener that something has changed. Never fails: they also look."""
        try:
            os.pwrite(self._descriptor, b"\0", 0)
        except OSError as error:
            if raised_by_program(error):
                raise

    def close(self) -> None:
        """Give the file up."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class Ear(ABC):
    """What one thread listens with; any thread may `wake` it."""

    def __init__(self, look_seconds: float) -> None:
        """Hear nothing but `wake` yet; who listens should look every *look_seconds*."""
        self.look_seconds = look_seconds
        self._read_end, self._write_end = os.pipe()
        self._open = [self._read_end, self._write_end]
        os.set_blocking(self._read_end, False)
        os.set_blocking(self._write_end, False)
        self._poll = select.poll()
        self._poll.register(self._read_end, select.POLLIN)

    @abstractmethod
    def heard(self) -> Collection[str] | None:
        """Return the session files that were closed since; None if that is not known."""

    def wait(self, seconds: float) -> Collection[str] | None:
        """Listen for up to *seconds*, and return what `heard` says."""
        if self._poll.poll(seconds * 1000):
            self._drain()
        return self.heard()

    def wake(self) -> None:
        """End the `wait` there is, or the next one."""
        with suppress(BlockingIOError):  # full, so it is woken already
            os.write(self._write_end, b"\0")

    def close(self) -> None:
        """Give up all descriptors. Idempotent."""
        while self._open:
            os.close(self._open.pop())

    def _drain(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._read_end, 4096)


class InotifyEar(Ear):
    """Hears at once."""

    def __init__(self, doorbell: Path, sessions: Path) -> None:
        """Listen to *doorbell* and to what happens in the directory *sessions*.

        Raises:
            OSError: The system or the user's limits do not allow it.
        """
        super().__init__(_LOOK_ANYWAY)
        try:
            self._descriptor = inotify.start()
            self._open.append(self._descriptor)
            inotify.watch(self._descriptor, doorbell, inotify.MODIFY)
            mask = inotify.CLOSE_WRITE | inotify.DELETE
            self._sessions = inotify.watch(self._descriptor, sessions, mask)
        except BaseException:
            self.close()
            raise
        self._poll.register(self._descriptor, select.POLLIN)

    @override
    def heard(self) -> Collection[str] | None:
        events = inotify.read(self._descriptor)
        if any(event.mask & inotify.OVERFLOW for event in events):
            return None
        return {event.name for event in events if event.watch == self._sessions}


class PollingEar(Ear):
    """Hears nothing and looks often."""

    @override
    def heard(self) -> Collection[str] | None:
        return None


def must_poll(notify: str) -> bool:
    """Say whether the setting *notify* means polling on this system.

    Raises:
        ConfigError: It asks for what the system does not have.
    """
    if notify == "inotify" and not inotify.is_available():
        raise ConfigError("plugin.embedded.notify = inotify: not on this system; use poll or auto")
    return notify == "poll" or not inotify.is_available()
