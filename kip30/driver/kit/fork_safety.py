"""Keeps a forked child from ending what the parent has, or waiting for its threads."""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

_log: logging.Logger = logging.getLogger(__name__)


class Forkable(Protocol):
    """Something open that a forked child inherits and must leave alone."""

    def abandon(self) -> None:
        """In the child: give up what is inherited without an effect on the parent.

        Every lock of it may be held by a thread that the child does not have: take none.
        """
        ...


class UninterruptedByFork:
    """A context that a fork waits for, so that the child does not inherit it half done.

    Thread-safe. A fork waits a limited time only: a thread may hold this while it waits for the
    forking one. Fork from inside is possible; the forking thread does not wait for itself.
    """

    def __init__(self, seconds: float) -> None:
        """Let a fork wait for up to *seconds*. Create few: they are never freed."""
        self._seconds = seconds
        self._inside: dict[int, int] = {}
        """Depth of each thread inside, by its ident; written under `_changed`."""
        self._forks = 0
        """Number of forks that wait or are under way; written under `_changed`."""
        self._changed = threading.Condition()
        _sections.append(self)

    def __enter__(self) -> None:
        """Wait for forks under way, unless this thread is inside already."""
        me = threading.get_ident()
        with self._changed:
            while self._forks and me not in self._inside:
                self._changed.wait()
            self._inside[me] = self._inside.get(me, 0) + 1

    def __exit__(self, *_error: object) -> None:
        """Let forks proceed once no thread is inside."""
        me = threading.get_ident()
        with self._changed:
            depth = self._inside.pop(me) - 1
            if depth:
                self._inside[me] = depth
            elif self._forks:
                self._changed.notify_all()

    def before_fork(self) -> None:
        """Let no thread in, and wait until all but this one are outside."""
        until = time.monotonic() + self._seconds
        with self._changed:
            self._forks += 1
            while self._inside.keys() - {threading.get_ident()}:
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    return

    def in_parent(self) -> None:
        """Let threads in again."""
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def in_child(self) -> None:
        """Forget the parent's threads and forks; the condition may be locked by one of them."""
        me = threading.get_ident()
        depth = self._inside.get(me)
        self._inside = {} if depth is None else {me: depth}
        self._forks = 0
        self._changed = threading.Condition()


_sections: list[UninterruptedByFork] = []
_open: weakref.WeakSet[Forkable] = weakref.WeakSet()
_kept: list[Forkable] = []
_has_used_stores = False
"""True if this process or one that it was forked from has opened a backend."""
_is_child = False
"""Value of `_has_used_stores` when this process was forked."""


def register(thing: Forkable) -> None:
    """Abandon *thing* in every child that is forked while it exists."""
    _open.add(thing)


def note_use() -> None:
    """Remember that this process has opened a backend."""
    global _has_used_stores  # noqa: PLW0603  of the process
    _has_used_stores = True


def is_child_of_user() -> bool:
    """Return whether this process was forked from one that has opened a backend."""
    return _is_child


def _before() -> None:
    for section in _sections:
        section.before_fork()


def _in_parent() -> None:
    for section in _sections:
        section.in_parent()


def _in_child() -> None:
    global _is_child  # noqa: PLW0603  of the process
    _is_child = _has_used_stores
    for section in _sections:
        section.in_child()
    # A vendor's client ends connections or waits for threads when it is collected as garbage, and
    # those are the parent's.
    inherited = list(_open)
    _kept.extend(inherited)
    _open.clear()
    for thing in inherited:
        _attempt(thing.abandon)


def _attempt(abandon: Callable[[], None]) -> None:
    try:
        abandon()
    except Exception:  # noqa: BLE001  the others must be abandoned all the same
        _log.exception("something of the parent process was not abandoned")


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
