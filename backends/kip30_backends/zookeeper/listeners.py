"""Snapshots and watches of values, namespaces, groups and services."""

from collections.abc import Callable
from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import ObserveDriver, Watch
from kip30.driver.records import Snapshot, Target
from kip30_backends.zookeeper.outbox import Outbox
from kip30_backends.zookeeper.states import States
from kip30_backends.zookeeper.watches import Watches


class ZookeeperObserve(ObserveDriver):
    """Whole targets, read once or watched."""

    def __init__(self, outbox: Outbox, states: States, watches: Watches) -> None:
        """Read by *states*; *watches* tell of changes."""
        self._outbox = outbox
        self._states = states
        self._watches = watches

    @override
    def snapshot(self, target: Target) -> Future[Snapshot]:
        return self._outbox.start(self._states.read(target, fresh=True))

    @override
    def watch(self, target: Target, sink: Callable[[Snapshot], None]) -> Watch:
        return self._watches.add(target, sink)
