"""Which of several servers is used: one at a time, and the next one when it fails."""

import threading
from collections.abc import Callable, Sequence

from kip30_backends.etcd.channel import Channel


class Endpoints:
    """The servers of one cluster. Thread-safe."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        """Begin with the first of *channels*."""
        self._channels = channels
        self._at = 0
        self._lock = threading.Lock()
        self.current = channels[0]
        self.on_move: Callable[[], None] = _nothing

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._channels)

    def leave(self, channel: Channel) -> None:
        """Use another server than that of *channel*, if there is one."""
        with self._lock:
            if channel is not self.current or len(self._channels) == 1:
                return
            self._at = (self._at + 1) % len(self._channels)
            self.current = self._channels[self._at]
        self.on_move()

    def close(self) -> None:
        """End all calls and connections."""
        for channel in self._channels:
            channel.close()


def _nothing() -> None:
    """Stand in until somebody wants to know."""
