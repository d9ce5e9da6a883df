"""A watch of one target, such as a service, which a campaign starts and stops."""

from collections.abc import Callable

from kip30.driver.records import Snapshot, Target
from kip30.runtime.open_store import OpenStore
from kip30.runtime.subscriptions import Feed


class TargetWatch:
    """A watch of one target that can be started and stopped, under the lock of the campaign.

    Attributes:
        feed: The feed of its states; None while the target is not watched.
    """

    def __init__(self, store: OpenStore, target: Target, wake: Callable[[], None]) -> None:
        """Watch nothing yet; call *wake* at every change: it must not block."""
        self.feed: Feed | None = None
        self._subscriptions = store.subscriptions
        self._target = target
        self._wake = wake

    def begin(self) -> None:
        """Watch the target, if it is not watched."""
        if self.feed is None:
            self.feed = self._subscriptions.attach(self._target, self)

    def end(self) -> None:
        """Stop watching the target."""
        if self.feed is not None:
            self.feed = None
            self._subscriptions.detach(self._target, self)

    def wake(self) -> None:
        """Note a change; the feed calls this."""
        self._wake()

    def latest(self) -> Snapshot | None:
        """Return the newest state that is known. Any thread may call."""
        feed = self.feed
        return feed.latest if feed is not None else None
