"""Shared code of the four interfaces: their lifecycle and their listeners."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from typing import Any

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.driver.records import Target
from kip30.errors import LifecycleError
from kip30.runtime.future_callbacks import check_callback
from kip30.runtime.open_store import OpenStore
from kip30.runtime.subscriptions import Describe, Subscription


class HandleCallbacks:
    """The callbacks of one handle, each counted once per target."""

    def __init__(self, store: OpenStore) -> None:
        """Start without callbacks."""
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
                self._store.registrations.add(target, callback, self)
        if wanted:
            subscription.start()
        else:
            self._store.unsubscribe(subscription)

    def remove(self, target: Target, callback: Callable[[Any], object]) -> None:
        """Remove *callback*, if it was added: no call of it starts after this returns.

        If it was not added here, but through other handles of the locator, it is removed there.
        In a forked child nothing happens: no callback of the parent is called there.

        Raises:
            UsageError: *callback* could not have been added.
        """
        check_callback(callback)
        if self._store.is_foreign() or self.remove_own(target, callback):
            return
        for other in self._store.registrations.of(target, callback):
            other.remove_own(target, callback)

    def remove_own(self, target: Target, callback: Callable[[Any], object]) -> bool:
        """Remove *callback* if it was added here; return whether it was."""
        with self._lock:
            subscription = self._kept.pop((target, callback), None)
            if subscription is None:
                return False
            self._store.registrations.discard(target, callback, self)
        self._store.unsubscribe(subscription)
        return True

    def close(self) -> None:
        """Remove all callbacks that were added here, and accept no more."""
        with self._lock:
            self._closed = True
        for target, callback in list(self._kept):
            self.remove_own(target, callback)


class Handle(Closeable):
    """One interface over an open store, shared by any number of threads; a context manager.

    If a handle is dropped without being closed, its claims and listeners stay in place until its
    locator is closed.
    """

    def __init__(self, store: OpenStore, owner: object) -> None:
        """Keep *owner* alive: the store stays open while a handle is in use."""
        self._store = store
        self._callbacks = HandleCallbacks(store)
        self._owner = owner
        self._closed = False

    @override
    def close(self) -> None:
        """Give back what was claimed through this handle and remove its listeners. Idempotent.

        Returns by the operation timeout. Releases that the store has not confirmed by then, or that
        wait for work under a term, are sent until it answers. Further calls raise
        `LifecycleError`. The locator and its other handles stay open. In a forked child nothing
        happens.
        """
        until = self._patience_ends()
        if self._end_locally():
            self._release_in_store(until)

    def _end_locally(self) -> bool:
        """Accept nothing more and end what was claimed, locally and at once.

        Return false if it had ended, or in a forked child, where nothing happens.
        """
        if self._closed or self._store.is_foreign():
            return False
        self._closed = True
        self._end_claims_locally()
        return True

    def _release_in_store(self, until: float) -> None:
        """Remove the listeners, and wait up to *until*, so that the store knows what has ended."""
        self._callbacks.close()
        # A store whose driver works inside the call may take all of the time for that.
        given_back = self._give_back()
        wait(given_back, max(0.0, until - self._store.context.clock.now()))

    def _patience_ends(self) -> float:
        """Return until when a call that begins now waits for the store."""
        context = self._store.context
        return context.clock.now() + context.operation_timeout_seconds

    def _check(self) -> None:
        """Raise unless this handle may be used here and now."""
        self._store.check()
        if self._closed:
            raise LifecycleError("this handle is closed: ask the locator for another")

    def _end_claims_locally(self) -> None:
        """End what was claimed, locally and at once."""

    def _give_back(self) -> Sequence[Future[None]]:
        """Release in the store what has ended; the futures end when the store knows."""
        return ()


class LoopHandle(Handle):
    """A handle that an event loop closes, in two steps: the second is for a thread."""

    def end_locally(self) -> bool:
        """End what was claimed, locally and at once; return false if it had ended."""
        return self._end_locally()

    def release_in_store(self, until: float | None = None) -> None:
        """Do the rest of `close`, which waits for the store, up to *until* if that is given."""
        self._release_in_store(self._patience_ends() if until is None else until)

    @staticmethod
    def close_together(handles: Sequence[Handle]) -> None:
        """Close *handles* of one locator, first all of them locally, by one operation timeout."""
        if not handles:
            return
        until = handles[0]._patience_ends()  # noqa: SLF001  of the base class
        with ExitStack() as closing:  # which closes all, also if one is interrupted
            for handle in reversed(handles):
                if handle._end_locally():  # noqa: SLF001  of the base class
                    release = handle._release_in_store  # noqa: SLF001  of the base class
                    closing.callback(release, until)
