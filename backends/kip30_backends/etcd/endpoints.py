"""Which of several servers is used: one at a time, and the next one when it fails.

A server whose TLS files have changed since is tried once more with the new ones.
"""

import threading
import weakref
from collections.abc import Callable, Sequence

from kip30_backends.etcd.channel import Channel


class Endpoints:
    """The servers of one cluster. Thread-safe."""

    def __init__(self, channels: Sequence[Channel], retire: Callable[[Channel], object]) -> None:
        """Begin with the first of *channels*; *retire* closes a replaced one after its last call.

        Args:
            channels: One for each server.
            retire: Closes a channel that is not used for new calls any more, some time later.
        """
        self._channels = list(channels)
        self._retire = retire
        # Replaced channels whose last calls may not have ended: a forked child must not close them.
        self._replaced: weakref.WeakSet[Channel] = weakref.WeakSet()
        self._at = 0
        self._closed = False
        self._lock = threading.Lock()
        self.current = channels[0]
        self.on_move: Callable[[], None] = _nothing

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._channels)

    def leave(self, channel: Channel) -> None:
        """Use another channel than *channel*: one with new TLS files, else that of another server.

        Nothing happens if there is neither.
        """
        with self._lock:
            if channel is not self.current or self._closed:
                return
            successor = channel.successor()
            if successor is not None:
                self._channels[self._at] = successor
                self._replaced.add(channel)
            elif len(self._channels) == 1:
                return
            else:
                self._at = (self._at + 1) % len(self._channels)
            self.current = self._channels[self._at]
        if successor is not None:
            self._retire(channel)
        self.on_move()

    def close(self) -> None:
        """End all calls and connections, and make no other channel."""
        with self._lock:
            self._closed = True
        for channel in self._channels:
            channel.close()

    def abandon(self) -> None:
        """In a forked child: leave all connections to the parent."""
        for channel in [*self._channels, *self._replaced]:
            channel.abandon()


def _nothing() -> None:
    """Stand in until somebody wants to know."""
