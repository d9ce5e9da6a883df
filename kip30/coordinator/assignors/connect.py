"""The work of Kafka Connect, divided among workers: connectors and their tasks.

Connectors are balanced on their own, and so are tasks: each worker gets as many of each as any
other, or one more or less. Work that has no parts is a connector without tasks.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from itertools import cycle
from typing import NamedTuple

_CONNECTOR = -1


class WorkUnit(NamedTuple):
    """A connector, whose number is -1, or one of its tasks, which count from 0."""

    connector: str
    number: int = _CONNECTOR

    @property
    def is_task(self) -> bool:
        """True if it is a task."""
        return self.number != _CONNECTOR


class EagerConnectAssignor:
    """Kafka's EagerAssignor: all work is revoked, and assigned from scratch.

    The workers, in the order of their ids, form one circle: first all connectors are assigned,
    then, continuing from there, all tasks. If each connector were assigned with its tasks, of
    connectors with one task some workers would get the connectors and others the tasks.
    """

    def assign(
        self, connectors: Mapping[str, int], workers: Collection[str]
    ) -> Mapping[str, list[WorkUnit]]:
        """Return the work of every worker.

        Args:
            connectors: How many tasks each connector has.
            workers: The ids of the workers, at least one.
        """
        assigned: dict[str, list[WorkUnit]] = {worker: [] for worker in sorted(workers)}
        for unit, worker in zip(_in_order(_units(connectors)), cycle(assigned), strict=False):
            assigned[worker].append(unit)
        return assigned


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectState:
    """The state that a leader keeps from one round to the next.

    A member that begins to lead starts with the default: its state of earlier terms is outdated.

    Attributes:
        generation: The generation that the round was to form.
        assigned: The work that a worker had after it, or that was held back for one.
        revoked: The work that workers had to stop in it.
        workers: The workers that took part.
        returned: Workers that came without work while lost work was held back: the lost
            work may be theirs.
        due_seconds: When the delay ends, on the leader's clock; None if none is running.
        balancing: Whether work was last revoked for balance, and no round since was balanced.
        delayed_rounds: How often in sequence such a revocation was postponed.
    """

    generation: int = -1
    assigned: frozenset[WorkUnit] = frozenset()
    revoked: frozenset[WorkUnit] = frozenset()
    workers: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()
    due_seconds: float | None = None
    balancing: bool = False
    delayed_rounds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectAssignment:
    """Changes of one round.

    Attributes:
        started: By worker, the work it begins in this generation.
        revoked: By worker, the work it stops; having stopped it, it asks for another round.
        delay_seconds: After how long the workers join again on their own; 0 if they need not.
        state: The state to pass to the next round of the same leader.
    """

    started: Mapping[str, Sequence[WorkUnit]]
    revoked: Mapping[str, Sequence[WorkUnit]]
    delay_seconds: float
    state: ConnectState


class IncrementalConnectAssignor:
    """KIP-415, as Kafka's IncrementalCooperativeAssignor: work that does not move keeps running.

    * A worker that has too much stops the excess in one round; the next one assigns it.
    * Work whose worker has gone is held back for up to *max_delay_seconds*: a worker that comes
      back in that time gets it. If the group has not lost a worker, but a worker has not got
      its work, that is assigned at once.
    * Rounds that revoke for balance do not follow each other at once: from the second on they
      are postponed by 40 ms, 1.6 s, … up to the same delay (KAFKA-12495).

    It differs from Kafka in two things. Work that is no longer configured is revoked also if a
    former leader assigned it; Kafka's workers find out from the topic with configurations. And lost
    work that a worker would get only to be over its even part goes to another at once.
    """

    def __init__(self, *, max_delay_seconds: float = 300.0) -> None:
        """Set how long lost work is held back; 0 assigns it at once, and postpones nothing."""
        self._max_delay = max_delay_seconds

    def assign(  # noqa: PLR0913  the facts of one round
        self,
        connectors: Mapping[str, int],
        workers: Mapping[str, Collection[WorkUnit]],
        *,
        state: ConnectState,
        completed: int,
        now_seconds: float,
        absent: Collection[str] = (),
    ) -> ConnectAssignment:
        """Return the work that each worker begins and stops.

        Args:
            connectors: How many tasks each connector has.
            workers: By id, at least one, the work that each says it is doing.
            absent: Those of them that are away. They do nothing: what is revoked from them need not
                stop first, and is assigned in this round.
            state: What this leader's last round returned, or the default.
            completed: The last generation that was formed; this round is to form the next. If it is
            not that of *state*, the last round was never completed: its assignments are dropped.
            now_seconds: The leader's clock.
        """
        previous = state.assigned if state.generation == completed else frozenset[WorkUnit]()
        plan = _Plan(_units(connectors), workers, previous, state.revoked, absent)
        handed_on, state = self._hand_on(plan, state, now_seconds)
        if state.due_seconds is None:
            state = self._rebalance(plan, state, now_seconds)
        else:
            state = replace(state, balancing=False)
        plan.deal(plan.created | handed_on)
        due = state.due_seconds
        return ConnectAssignment(
            started={
                worker: _in_order(part.difference(workers[worker]))
                for worker, part in plan.parts.items()
            },
            revoked={worker: _in_order(units) for worker, units in plan.revoked.items()},
            delay_seconds=0.0 if due is None else due - now_seconds,
            state=replace(
                state,
                generation=completed + 1,
                assigned=plan.lost.union(*plan.parts.values()),
                revoked=plan.stopping(),
                workers=frozenset(workers),
            ),
        )

    def _hand_on(
        self, plan: "_Plan", state: ConnectState, now: float
    ) -> tuple[AbstractSet[WorkUnit], ConnectState]:
        """Return the lost work to assign now, and the new state of the delay."""
        nothing = frozenset[WorkUnit]()
        if not plan.lost and not state.balancing:
            return nothing, replace(state, due_seconds=None, returned=frozenset())
        due = state.due_seconds
        if (due is None and state.workers <= plan.parts.keys()) or not self._max_delay:
            return plan.lost, state
        if due is not None and due <= now:
            dealt = plan.deal_to(sorted(state.returned & plan.parts.keys()))
            over = replace(state, due_seconds=None, returned=frozenset(), balancing=False)
            return nothing if dealt else plan.lost, over
        latest = now + self._max_delay
        idle = {worker for worker, part in plan.parts.items() if not part}
        return nothing, replace(
            state,
            due_seconds=latest if due is None else min(due, latest),
            returned=state.returned | idle,
        )

    def _rebalance(self, plan: "_Plan", state: ConnectState, now: float) -> ConnectState:
        """Revoke for balance, or postpone that if the previous round has already done it."""
        excess = plan.excess()
        if not excess:
            return replace(state, balancing=False, delayed_rounds=0) if state.balancing else state
        if state.balancing:
            state = replace(state, delayed_rounds=state.delayed_rounds + 1)
            delay = min(self._max_delay, _backoff_seconds(state.delayed_rounds))
            if delay:
                return replace(state, due_seconds=now + delay)
        plan.revoke(excess)
        return replace(state, balancing=True)


class _Plan:
    """One round: the plan for configured work and for work that is being done.

    Attributes:
        lost: Work that was assigned before, and that no worker does.
        created: Work to be assigned that no worker does: it was never assigned, or not begun.
        parts: By worker, the work it will have; workers are in the order of their ids.
        revoked: By worker, the work it does and must stop.
    """

    def __init__(
        self,
        configured: AbstractSet[WorkUnit],
        workers: Mapping[str, Collection[WorkUnit]],
        previous: frozenset[WorkUnit],
        revoked_before: frozenset[WorkUnit],
        absent: Collection[str],
    ) -> None:
        """Start with what workers do, less what is not configured or done by two of them."""
        self._configured = configured
        self._absent = absent
        self._doing = {worker: frozenset(units) for worker, units in sorted(workers.items())}
        doing = Counter(unit for units in self._doing.values() for unit in units)
        if doing.keys() & revoked_before:
            previous = frozenset(doing)  # the last round has not reached every worker
        self.lost = (previous & configured) - doing.keys()
        self.created = configured - previous - doing.keys()
        wrong = {unit for unit, count in doing.items() if count > 1 or unit not in configured}
        self.parts = {worker: set(units - wrong) for worker, units in self._doing.items()}
        self.revoked = {worker: set(units & wrong) for worker, units in self._doing.items()}

    def excess(self) -> dict[str, set[WorkUnit]]:
        """Return, by worker, the work it has beyond an even part of what is configured."""
        found: dict[str, set[WorkUnit]] = {}
        for tasks in (False, True):
            total = sum(unit.is_task is tasks for unit in self._configured)
            least, longer = divmod(total, len(self.parts))
            for worker, part in self.parts.items():
                if len(units := self._kept_first(worker, part, tasks=tasks)) <= least:
                    continue
                keeps = least + (longer > 0)
                longer -= 1
                if units[keeps:]:
                    found.setdefault(worker, set()).update(units[keeps:])
        return found

    def _kept_first(
        self, worker: str, part: AbstractSet[WorkUnit], *, tasks: bool
    ) -> list[WorkUnit]:
        """Return the units of one kind in *part*, those that the worker already does first."""
        units = (unit for unit in part if unit.is_task is tasks)
        return sorted(units, key=lambda unit: (unit not in self._doing[worker], unit))

    def revoke(self, excess: Mapping[str, AbstractSet[WorkUnit]]) -> None:
        """Take work from workers: running work is assigned once it has stopped, the rest now."""
        for worker, units in excess.items():
            self.parts[worker] -= units
            self.revoked[worker] |= units & self._doing[worker]
            self.created |= units - self.stopping()

    def stopping(self) -> frozenset[WorkUnit]:
        """Return the revoked work that a worker must stop before another one may begin it."""
        return frozenset[WorkUnit]().union(
            *(units for worker, units in self.revoked.items() if worker not in self._absent)
        )

    def deal(self, units: AbstractSet[WorkUnit]) -> None:
        """Give each unit to the worker that has the fewest of its kind."""
        for tasks in (False, True):
            fewest = [
                (sum(unit.is_task is tasks for unit in part), worker)
                for worker, part in self.parts.items()
            ]
            heapify(fewest)
            for unit in sorted(unit for unit in units if unit.is_task is tasks):
                count, worker = fewest[0]
                self.parts[worker].add(unit)
                heapreplace(fewest, (count + 1, worker))

    def deal_to(self, returned: Sequence[str]) -> bool:
        """Give all lost work to workers that have come back; return whether there are any."""
        for tasks in (False, True):
            units = sorted(unit for unit in self.lost if unit.is_task is tasks)
            for unit, worker in zip(units, cycle(returned), strict=False):
                self.parts[worker].add(unit)
        return bool(returned)


def _units(connectors: Mapping[str, int]) -> frozenset[WorkUnit]:
    return frozenset(
        WorkUnit(connector, number)
        for connector, tasks in connectors.items()
        for number in range(_CONNECTOR, tasks)
    )


def _in_order(units: Iterable[WorkUnit]) -> list[WorkUnit]:
    """Return the connectors, then the tasks, each by name."""
    return sorted(units, key=lambda unit: (unit.is_task, unit))


def _backoff_seconds(rounds: int) -> float:
    """Return Kafka's backoff: 1 ms times 40 for each round. It is beyond any delay at the tenth."""
    return 0.001 * 40.0 ** min(rounds, 10)
