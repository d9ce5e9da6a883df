"""The choice between several servers, and the token in place of user and password.

One server is used at a time, and the next one when it fails. A server whose TLS files have changed
since is first retried with the new ones. The token is requested at the start, and again when it is
refused.
"""

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from kip30.driver.kit.futures import attempt
from kip30.driver.kit.lifecycle import do_nothing
from kip30.errors import Kip30Error
from kip30_backends.etcd.client.channel import Channel, Metadata


class Endpoints:
    """The servers of one cluster. Thread-safe."""

    def __init__(self, channels: Sequence[Channel], retire: Callable[[Channel], object]) -> None:
        """Start with the first of *channels*; *retire* closes a replaced one after its last call.

        Args:
            channels: One for each server.
            retire: Closes a channel that is no longer used for new calls, some time later.
        """
        self._channels = list(channels)
        self._retire = retire
        # Replaced channels whose last calls may not have ended: a forked child must not close them.
        self._replaced: weakref.WeakSet[Channel] = weakref.WeakSet()
        self._lock = threading.Lock()
        # The channel in use, and its number. Written under the lock, read without it.
        self._at = 0
        self.current = channels[0]
        # Set once, under the lock: a successor that was made later would never be closed.
        self._closed = False
        # Called after each change of `current`. Set once, when the watches are made.
        self.on_move: Callable[[], None] = do_nothing

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
        # Without the lock, so that it is never held while the locks of watches are acquired.
        if successor is not None:
            self._retire(channel)
        self.on_move()

    def close(self) -> None:
        """End all calls and connections, and open no other channel."""
        with self._lock:
            self._closed = True
        for channel in self._channels:
            channel.close()

    def abandon(self) -> None:
        """In a forked child: leave all connections to the parent."""
        for channel in [*self._channels, *self._replaced]:
            channel.abandon()


_HAS_LEADER: Metadata = (("hasleader", "true"),)
"""Makes a server that is cut off from the others fail a call, instead of waiting for them."""

_HOLD_OFF = 1.0

RenewalCallback = Callable[[Kip30Error | None], None]


class Tokens:
    """The metadata of all calls. Thread-safe.

    Attributes:
        metadata: The metadata to send with a call.
        renewable: Whether there are a user and a password.
    """

    def __init__(
        self, authenticate: Callable[[float], Future[str]] | None, given: Metadata = ()
    ) -> None:
        """Get tokens by *authenticate*, which receives its timeout in seconds.

        Without it the token is what was *given*, if anything.
        """
        self.metadata = (*_HAS_LEADER, *given)
        self.renewable = authenticate is not None
        self._authenticate = authenticate
        # All of these, and `metadata`, are written under the lock.
        # The calls that wait for a token request under way; empty if there is none.
        self._waiting: list[RenewalCallback] = []
        # The error of the last token request, None if it had none, and the time of that.
        self._refused: Kip30Error | None = None
        self._refused_at = 0.0
        self._lock = threading.Lock()

    def renew(self, stale: Metadata, seconds: float, renewed: RenewalCallback) -> None:
        """Replace the token of *stale*; then call *renewed*, with the error if there is one.

        The request has a timeout of *seconds*.

        A caller that comes during a token request waits for its result. A refusal is kept for a
        second, so that a wrong password causes no storm of requests.
        """
        with self._lock:
            refused = self._fresh_refusal()
            # By identity: another call may have renewed the token since *stale* was sent.
            known = refused is not None or stale is not self.metadata
            first = not self._waiting
            if not known:
                self._waiting.append(renewed)
        if known:
            renewed(refused)
        elif first and self._authenticate is not None:
            attempt(self._authenticate, seconds).add_done_callback(self._answered)

    def _fresh_refusal(self) -> Kip30Error | None:
        old = time.monotonic() - self._refused_at > _HOLD_OFF
        return None if old else self._refused

    def _answered(self, answer: Future[str]) -> None:
        error = answer.exception()
        with self._lock:
            self._refused = error if isinstance(error, Kip30Error) else None
            self._refused_at = time.monotonic()
            if error is None:
                self.metadata = _with_token(answer.result())
            waiting, self._waiting = self._waiting, []
        for renewed in waiting:
            renewed(self._refused)


def _with_token(token: str) -> Metadata:
    return (*_HAS_LEADER, ("token", token)) if token else _HAS_LEADER
