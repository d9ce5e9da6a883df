"""The code that another thread executes at this moment."""

import gc
import sys
import threading
from types import CodeType
from typing import Any

from kip30.driver.kit.fork_safety import UninterruptedByFork

_FORK_SECONDS = 1.0
_COLLECTS_ANYWHERE = sys.version_info < (3, 12)
"""Whether the garbage collector may run inside a function of the interpreter.

There the process freezes for ever (https://github.com/python/cpython/issues/106883): while
`sys._current_frames` makes its result it holds a lock of the interpreter, for which another thread
may wait with the GIL that the collector needs.
"""

# A child must not inherit a collector that is switched off.
_looking = UninterruptedByFork(_FORK_SECONDS)
_lock = threading.Lock()


def code_of(thread: int) -> CodeType | None:
    """Return the code of the innermost Python function of *thread*; None if it has ended."""
    frame = _frames_without_collector().get(thread) if _COLLECTS_ANYWHERE else _frames().get(thread)
    return None if frame is None else frame.f_code


def _frames() -> dict[int, Any]:
    interpreter: Any = sys
    frames: dict[int, Any] = interpreter._current_frames()  # noqa: SLF001  documented, in spite of its name
    return frames


def _frames_without_collector() -> dict[int, Any]:
    with _looking, _lock:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return _frames()
        finally:
            if was_enabled:
                gc.enable()
