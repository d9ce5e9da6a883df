"""What the four interfaces have in common: they are handed out, may be listened to, and close."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any

from typing_extensions import override

from kip30.driver.kit.lifecycle import Closing
from kip30.driver.records import Target
from kip30.errors import LifecycleError
from kip30.runtime.callbacks import check_callback
from kip30.runtime.open_store import OpenStore
from kip30.runtime.subscriptions import Describe, Subscription


class Subscriptions:
    """The callbacks of one handle, each counted once per target."""

    def __init__(self, store: OpenStore) -> None:
        """Begin with none."""
        self._store = store
        self._kept: dict[tuple[Target, Any], Subscription[Any]] = {}
        self._lock = threading.Lock()
        self._closed = False

    def add(
        self,
        target: Target,
        describe: Describe[Any],
        callback: Callable[[Any], object],
        *,
        initial: bool,
    ) -> None:
        """Subscribe as `OpenStore.subscribe` does, unless *callback* is there already.

        Raises:
            UsageError: *callback* cannot be called, or cannot be hashed. Nothing is registered.
        """
        check_callback(callback)
        if (target, callback) in self._kept:
            return
        subscription = self._store.subscribe(target, describe, callback, initial=initial)
        with self._lock:
            wanted = not self._closed and (target, callback) not in self._kept
            if wanted:
                self._kept[target, callback] = subscription
        if wanted:
            subscription.start()
        else:
            self._store.unsubscribe(subscription)

    def remove(self, target: Target, callback: Callable[[Any], object]) -> None:
        """Start no call of *callback* after this returns; if it is not there, do nothing.

        In a forked child nothing happens: no callback of the parent is called there.

        Raises:
            UsageError: *callback* is nothing that could have been added.
        """
        check_callback(callback)
        if self._store.is_foreign():
            return
        with self._lock:
            subscription = self._kept.pop((target, callback), None)
        if subscription is not None:
            self._store.unsubscribe(subscription)

    def close(self) -> None:
        """Remove them all, and take no more."""
        with self._lock:
            self._closed = True
        for target, callback in list(self._kept):
            self.remove(target, callback)


class Handle(Closing):
    """One interface over an open store, shared by any number of threads; a context manager.

    A handle that is dropped without being closed leaves what was claimed and registered
    through it in place until its locator is closed.
    """

    def __init__(self, store: OpenStore, owner: object) -> None:
        """Keep *owner* alive: the store stays open while a handle is in use."""
        self._store = store
        self._subscriptions = Subscriptions(store)
        self._owner = owner
        self._closed = False

    @override
    def close(self) -> None:
        """Give back what was claimed through this handle and remove its listeners. Idempotent.

        Returns by the operation timeout. What the store could not be told by then it is told
        as soon as it answers. Further calls raise `LifecycleError`. The locator and its other
        handles stay open. In a forked child nothing happens.
        """
        if self._store.is_foreign() or self._closed:
            return
        self._closed = True
        self._subscriptions.close()
        wait(self._give_back(), self._store.context.operation_timeout_seconds)

    def _check(self) -> None:
        """Raise unless this handle may be used here and now."""
        self._store.check()
        if self._closed:
            raise LifecycleError("this handle is closed: ask the locator for another")

    def _give_back(self) -> Sequence[Future[None]]:
        """End what was claimed; the futures end when the store knows."""
        return ()
