"""Lines on stderr that say what is done, and for how many seconds it has been going on."""

import sys
import time


class Progress:
    """What one server's installation has to say."""

    def __init__(self, title: str) -> None:
        """Start the clock of the server called *title*."""
        self._title = title
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        """Print *text* with the seconds since the start."""
        seconds = time.monotonic() - self._start
        print(f"{self._title}: {text} [{seconds:.1f} s]", file=sys.stderr, flush=True)
