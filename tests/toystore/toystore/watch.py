"""Observing: the store calls back with its lock held, so states arrive in order, one at a time."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from kip30.driver import Watch
from kip30.driver.kit.watch import Sink, WatchHandle
from kip30.driver.records import Snapshot, Target
from toystore.memory import Memory
from toystore.session import Sessions


class Watches:
    """All watches of one backend."""

    def __init__(self, memory: Memory, sessions: Sessions) -> None:
        self._memory = memory
        self._sessions = sessions
        self._open: dict[WatchHandle, Callable[[], None]] = {}

    def read(self, target: Target) -> Future[Snapshot]:
        """Return the state of *target*."""
        return self._sessions.answer(lambda: self._memory.look(target))

    def add(self, target: Target, sink: Sink) -> Watch:
        """Tell *sink* of *target* from now on."""
        watch = WatchHandle(target, sink, self._forget)
        self._open[watch] = partial(self._deliver, watch)
        self._memory.watch(target, self._open[watch])
        return watch

    def close(self) -> None:
        """End every watch."""
        for watch in list(self._open):
            watch.close()

    def _deliver(self, watch: WatchHandle) -> None:
        watch.deliver(self._memory.look(watch.target))

    def _forget(self, watch: WatchHandle) -> None:
        self._memory.unwatch(watch.target, self._open.pop(watch))
