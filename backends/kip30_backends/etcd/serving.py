"""gRPC's thread that serves the calls of a channel, and its start when there was none to spare.

gRPC starts that thread with the first of several calls, and counts the call before it does. If the
system has no thread to spare, the call stays counted and no thread serves it: no later call starts
the thread, so none would ever end, and closing the channel waits for them without a limit. gRPC
offers no remedy, so what it does inside is done again here.
"""

# ruff: noqa: SLF001  see above

from types import TracebackType
from typing import Any

_START = "_run_channel_spin_thread"


def lacks_server(error: RuntimeError) -> bool:
    """Say whether *error*, raised by gRPC, leaves behind a call that no thread serves."""
    return any(frame == _START for frame in _functions(error.__traceback__))


def serve(channel: Any) -> None:
    """Start the thread that *channel* lacks.

    Raises:
        RuntimeError: The system still has none to spare.
    """
    # By way of its methods: a process may have several instances of gRPC.
    channel.close.__func__.__globals__[_START](channel._call_state)


def _functions(traceback: TracebackType | None) -> list[str]:
    names: list[str] = []
    while traceback is not None:
        names.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    return names
