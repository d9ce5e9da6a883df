"""Observing: the store calls back with its lock held, so states arrive in order, one at a time."""

from collections.abc import Callable
from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import ObserveDriver, Watch
from kip30.driver.records import Snapshot, Target
from toystore.memory import Memory
from toystore.session import Session


class ToyObserve(ObserveDriver):
    def __init__(self, memory: Memory, session: Session) -> None:
        self._memory = memory
        self._session = session
        self._watches: set[ToyWatch] = set()

    @override
    def snapshot(self, target: Target) -> Future[Snapshot]:
        return self._session.answer(lambda: self._memory.look(target))

    @override
    def watch(self, target: Target, sink: Callable[[Snapshot], None]) -> Watch:
        watch = ToyWatch(self._memory, target, sink, self._watches.discard)
        self._watches.add(watch)
        return watch

    def close(self) -> None:
        """End every watch."""
        for watch in list(self._watches):
            watch.close()


class ToyWatch(Watch):
    def __init__(
        self,
        memory: Memory,
        target: Target,
        sink: Callable[[Snapshot], None],
        forget: Callable[["ToyWatch"], None],
    ) -> None:
        self._memory = memory
        self._target = target
        self._sink = sink
        self._forget = forget
        memory.watch(target, self._tell)

    @override
    def close(self) -> None:
        self._memory.unwatch(self._target, self._tell)
        self._forget(self)

    def _tell(self) -> None:
        self._sink(self._memory.look(self._target))
