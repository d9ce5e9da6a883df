"""A full pipe, whose reader does not read."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

FILLING = b"z" * 512


class FullPipe:
    """A pipe that holds all it can, so that writing to it blocks. Both ends are the test's."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def fill(self) -> None:
        os.set_blocking(self.writing, False)
        for size in (len(FILLING), 1):
            with suppress(BlockingIOError):
                while True:
                    os.write(self.writing, FILLING[:size])
        os.set_blocking(self.writing, True)


@contextmanager
def full_pipe() -> Iterator[FullPipe]:
    """Yield a pipe that is full already, and close it."""
    pipe = FullPipe()
    pipe.fill()
    try:
        yield pipe
    finally:
        os.close(pipe.reading)
        os.close(pipe.writing)
