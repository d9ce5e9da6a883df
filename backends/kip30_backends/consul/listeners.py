"""Snapshots and watches of values, namespaces, groups and services."""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from typing_extensions import override

from kip30.driver import ObserveDriver, Watch
from kip30.driver.records import Snapshot, Target
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.states import States
from kip30_backends.consul.watches import Watches


class ConsulObserve(ObserveDriver):
    """Whole targets, read once or watched."""

    def __init__(self, calls: Calls, states: States, watches: Watches) -> None:
        """Read from *states* and be told by *watches*."""
        self._calls = calls
        self._states = states
        self._watches = watches

    @override
    def snapshot(self, target: Target) -> Future[Snapshot]:
        return self._calls.on_demand(partial(self._states.read, self._states.place(target)))

    @override
    def watch(self, target: Target, sink: Callable[[Snapshot], None]) -> Watch:
        return self._watches.add(target, sink)
