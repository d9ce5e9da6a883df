"""What a fork must not do to an open backend: share its locks, or touch its connections."""

import os
import threading
import weakref
from typing import Protocol

from kip30_backends.embedded import locks


class Forkable(Protocol):
    """Something open that a forked child inherits and must leave alone."""

    def pinned(self) -> list[object]:
        """Before a fork: return what must not be cleared away in the child."""
        ...

    def abandon(self) -> None:
        """In the child: give up what is inherited without an effect on the parent."""
        ...


_open: weakref.WeakSet[Forkable] = weakref.WeakSet()
_lock = threading.Lock()
_pinned: list[object] = []


def register(thing: Forkable) -> None:
    """Have *thing* told of forks for as long as it exists."""
    with _lock:
        _open.add(thing)


def _before() -> None:
    # The child clears the thread locals of all threads but the forking one before any hook runs
    # in it. What they hold is kept here, lest it be finalised there.
    _lock.acquire()
    for thing in _open:
        _pinned.extend(thing.pinned())


def _in_parent() -> None:
    _pinned.clear()
    _lock.release()


def _in_child() -> None:
    locks.forget_held()
    for thing in _open:
        thing.abandon()
    _open.clear()
    _in_parent()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
