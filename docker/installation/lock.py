"""A lock file that processes take turns by."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

LOOK_AGAIN_SECONDS = 0.1


@asynccontextmanager
async def held(path: Path, on_wait: Callable[[], None]) -> AsyncIterator[int]:
    """Hold the lock of *path* in the block, and yield its file descriptor.

    The lock is the open file's: who inherits the descriptor holds it, too, until it ends. The
    file stays, since others may be about to lock it.

    Args:
        path: The lock file; made if it is not there.
        on_wait: Called once if another holds the lock.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        if not _try(descriptor):
            on_wait()
            while not _try(descriptor):  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
        yield descriptor
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
