"""Closing of a backend: once, and automatically when nothing refers to it any longer."""

import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from operator import methodcaller
from typing import Any

from kip30.driver.kit.thread_start import start_eventually


class CloseOnce:
    """Runs a close function once; further callers wait until it has finished."""

    def __init__(self, is_awaited: Callable[[], bool]) -> None:
        """Start open; a caller does not wait if *is_awaited* returns that others wait for it."""
        self._is_awaited = is_awaited
        # The first caller takes one lock for good, and notes that in the same call of C code. It
        # releases the other one in the end. Elsewhere, as inside of an event, a signal handler may
        # raise, and all other callers would wait for ever.
        self._begun = threading.Lock()
        self._over = threading.Lock()
        self._over.acquire()

    def once(self, end: Callable[[], None]) -> None:
        """Run *end*, unless that was begun; then return when it has finished."""
        taken: list[threading.Lock] = []
        try:
            taken.extend(filter(_taken, [self._begun]))
            if taken:
                end()
            elif not self._is_awaited():
                with self._over:
                    pass
        finally:
            if taken:
                self._over.release()

    def forgo(self) -> None:
        """Mark it closed in a forked child, without closing: the resources are the parent's."""
        self._begun, self._over = threading.Lock(), threading.Lock()
        self._begun.acquire()


_taken = methodcaller("acquire", blocking=False)


def end_all(*steps: Callable[[], object]) -> None:
    """Call *steps* in their order, each even if an earlier one raises, and then raise its error.

    So Ctrl-C in a step that waits for the store keeps no other thread or connection open.
    """
    with ExitStack() as last_first:
        for step in reversed(steps):
            last_first.callback(step)


def do_nothing(*_arguments: object) -> None:
    """Serve as a placeholder until the callback is set."""


def on_thread_of(*names: str) -> Callable[[], bool]:
    """Return a function that checks whether the thread's name begins with one of *names*."""
    return lambda: threading.current_thread().name.startswith(names)


def close_when_dropped(owner: object, close: Callable[[], None]) -> "weakref.finalize[..., Any]":
    """Call *close* when *owner* is garbage, but not at the end of the process.

    The object that *close* belongs to must not refer to *owner*. `weakref.finalize.detach` undoes
    this.
    """
    finalizer = weakref.finalize(owner, close)
    finalizer.atexit = False
    return finalizer


def close_on_thread(close: Callable[[], None], name: str) -> None:
    """Call *close*, which may wait, on a thread of its own called *name*.

    The garbage collector runs finalizers on any thread, inside of any other work.
    """
    start_eventually(threading.Thread(target=close, name=name, daemon=True))
