"""A file that another thread makes and removes the whole time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def removed_again_and_again(file: Path) -> Iterator[None]:
    """Make and remove *file* by turns until the block ends, at least once."""
    done = threading.Event()

    def remove() -> None:
        while True:
            file.touch(0o600)
            file.unlink()
            if done.is_set():
                return

    thread = threading.Thread(target=remove)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
