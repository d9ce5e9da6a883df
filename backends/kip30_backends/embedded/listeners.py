"""Snapshots and watches of values, namespaces, groups and services."""

from collections.abc import Callable
from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import ObserveDriver, Watch
from kip30.driver.records import Snapshot, Target
from kip30_backends.embedded.answers import Answers
from kip30_backends.embedded.pulse import Pulse
from kip30_backends.embedded.states import States
from kip30_backends.embedded.watches import Watches


class EmbeddedObserve(ObserveDriver):
    """Whole targets, read once or watched."""

    def __init__(self, states: States, watches: Watches, pulse: Pulse, answers: Answers) -> None:
        """Read from *states*; what *watches* are told is told by *pulse*."""
        self._states = states
        self._watches = watches
        self._pulse = pulse
        self._answers = answers

    @override
    def snapshot(self, target: Target) -> Future[Snapshot]:
        return self._answers.give(
            "observe.snapshot", target.scope, lambda: self._states.current(target)
        )

    @override
    def watch(self, target: Target, sink: Callable[[Snapshot], None]) -> Watch:
        watch = self._watches.add(target, sink)
        try:
            self._pulse.wake()
        except BaseException:
            watch.close()
            raise
        return watch
