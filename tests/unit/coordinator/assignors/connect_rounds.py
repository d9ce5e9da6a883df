"""Rounds of a group of Connect workers, which do what they are assigned at once."""

from collections import Counter
from collections.abc import Mapping

from kip30.coordinator.assignors import (
    ConnectAssignment,
    ConnectState,
    IncrementalConnectAssignor,
    WorkUnit,
)


class ConnectRounds:
    """A group with one leader, whose clock moves only as a test says.

    Attributes:
        connectors: The sorted counts of connectors, a worker each.
        tasks: The same of tasks.
    """

    def __init__(self, assignor: IncrementalConnectAssignor, configured: Mapping[str, int]) -> None:
        self.assignor = assignor
        self.configured = dict(configured)
        self.doing: dict[str, set[WorkUnit]] = {}
        self.state = ConnectState()
        self.completed = -1
        self.now_seconds = 1000.0

    def members(self, *workers: str) -> None:
        """Let the group have these workers: others leave, new ones do nothing."""
        self.doing = {worker: self.doing.get(worker, set()) for worker in workers}

    def assign(self) -> ConnectAssignment:
        """Let the leader assign; its workers do not hear of it."""
        done = self.assignor.assign(
            self.configured,
            self.doing,
            state=self.state,
            completed=self.completed,
            now_seconds=self.now_seconds,
        )
        self.state = done.state
        return done

    def run(self) -> ConnectAssignment:
        """Let the leader assign, and the workers act on it."""
        done = self.assign()
        for worker, units in self.doing.items():
            assert units.issuperset(done.revoked[worker])
            assert units.isdisjoint(done.started[worker])
        self._check_not_in_two_hands(done)
        for worker, units in self.doing.items():
            units.difference_update(done.revoked[worker])
            units.update(done.started[worker])
        self.completed += 1
        return done

    def rests(self) -> bool:
        """Run a round; return whether it changed nothing and asked for no other."""
        done = self.run()
        return not (done.delay_seconds or any(done.started.values()) or any(done.revoked.values()))

    def new_leader(self) -> None:
        """Let another worker lead, which knows nothing of earlier rounds."""
        self.state = ConnectState()

    def _check_not_in_two_hands(self, done: ConnectAssignment) -> None:
        """Check that nothing begins while a worker, which may stop late, still does it."""
        doing = {unit for units in self.doing.values() for unit in units}
        starts = Counter(unit for units in done.started.values() for unit in units)
        assert doing.isdisjoint(starts)
        assert set(starts.values()) <= {1}

    @property
    def connectors(self) -> list[int]:
        return self._counts(tasks=False)

    @property
    def tasks(self) -> list[int]:
        return self._counts(tasks=True)

    def _counts(self, *, tasks: bool) -> list[int]:
        return sorted(sum(unit.is_task is tasks for unit in units) for units in self.doing.values())
