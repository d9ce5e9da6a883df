"""Calls of one callback, of which none starts once its removal has returned."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from kip30.runtime.thread_frames import code_of

E = TypeVar("E")

Measure = Callable[[object, float], object]
"""Takes what a callback has returned, None if it raised, and when it began, by `time.monotonic`."""

_LONGEST_WAIT = 0.2
_PAUSE = 0.0002


class CallGate:
    """Calls one callback until it is closed. Only one call at a time; any thread may close."""

    def __init__(self, measure: Measure | None = None) -> None:
        """Start open; pass the end of each call to *measure*."""
        self._measure = measure
        self._lock = threading.Lock()
        self._closed = False
        # The thread that calls. Set under the lock, unless closed; the thread itself resets it.
        self._caller: int | None = None

    def call(self, callback: Callable[[E], object], event: E) -> object:
        """Return what *callback* returns; if closed, return None and do not call it."""
        with self._lock:
            if self._closed:
                return None
            self._caller = threading.get_ident()
        result = None
        began = 0.0 if self._measure is None else time.monotonic()
        try:
            result = callback(event)
        finally:
            self._caller = None
            if self._measure is not None:
                self._measure(result, began)
        return result

    def close(self) -> None:
        """Start no call after this returns; one that has started may end.

        A thread may be between the lock and the first line of the callback: this waits for that
        line, and never for the end of the callback.
        """
        with self._lock:
            self._closed = True
            caller = self._caller
        if caller is None or caller == threading.get_ident():
            return
        until = time.monotonic() + _LONGEST_WAIT  # a callback in C shows no line of its own
        while self._caller == caller and _is_about_to_call(caller) and time.monotonic() < until:
            time.sleep(_PAUSE)


def _is_about_to_call(thread: int) -> bool:
    return code_of(thread) is CallGate.call.__code__
