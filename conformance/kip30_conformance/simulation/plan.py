"""All that a seed expands to: processes, clocks, the network, and the faults of one run.

A plan is printed with each failure. It can be written as JSON and read again, and then fails in the
same way, as long as code and plan stay the same.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from operator import attrgetter
from typing import Any

from kip30_conformance.simulation.dialects import DIALECTS
from kip30_conformance.simulation.item_program import SECONDS_ABOVE_SESSION
from kip30_conformance.simulation.network import NetworkConditions

LEADER = -1
"""The target of a fault that strikes the process that leads by then, or else the first one."""


class RunFaultKind(Enum):
    """A fault of a process, or of the store."""

    CUT_OFF = "nothing passes between the process and the store"
    UNHEARD = "its requests are lost, and answers and notifications arrive"
    PAUSE = "its threads stand still, and its clock runs on"
    DOWN = "the store answers no one"
    LOSSY = "half of all requests and answers are lost"
    LATE = "half of all requests and answers are late"
    MISSED = "half of all notifications are lost"
    KILL = "it is killed, and another one takes its place"
    EVICT = "its member is removed from the store"
    EXPIRE = "its session is ended in the store"
    NO_VALUES = "nothing about values passes between it and the store, and all else does"
    UNANSWERED = "its claims are served, and no answer to a claim arrives"
    SLOW = "answers to it take 2.5 s more"
    NO_POLLS = "it does not poll the group that divides items"


_RARE = frozenset(
    {
        RunFaultKind.NO_VALUES,
        RunFaultKind.UNANSWERED,
        RunFaultKind.SLOW,
        RunFaultKind.NO_POLLS,
    }
)
"""The kinds that are not among the usual ones; `_lost_values` and other functions add them."""
_USUAL = tuple(kind for kind in RunFaultKind if kind not in _RARE)


@dataclass(frozen=True, slots=True)
class RunFault:
    """One fault.

    Attributes:
        kind: What happens.
        at: When it begins, in seconds.
        seconds: How long it lasts, if it is of a kind that lasts.
        target: The number of a process, or `LEADER`.
    """

    kind: RunFaultKind
    at: float
    seconds: float
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """One run.

    Attributes:
        seed: What it was expanded from; it also decides the order of threads.
        fault_seconds: How long there are faults.
        session_seconds: The session timeout.
        operation_seconds: The operation timeout.
        dialect: Which of `DIALECTS` the store has.
        rates: How fast the clock of each process runs.
        interruptions: The chance that a thread gives way where it acquires a lock.
        demotions: As for `Simulation`; None lets threads run by chance.
        delay_seconds: As for `NetworkConditions`, and so on.
        faults: In the order in which they begin.
        has_locks: Whether the processes share a lock, too.
        has_items: Whether they divide items, too.
        operators: Number of operators that direct the election.
        has_bans: Whether they ban members instead.
        priorities: Of the candidate of each process; empty: none has one.
    """

    seed: int
    fault_seconds: float
    session_seconds: float
    operation_seconds: float
    dialect: str
    rates: tuple[float, ...]
    interruptions: float
    demotions: float | None
    delay_seconds: float
    lost_requests: float
    lost_answers: float
    late_messages: float
    late_seconds: float
    lost_notifications: float
    repeated_notifications: float
    faults: tuple[RunFault, ...]
    has_locks: bool = False
    has_items: bool = False
    operators: int = 0
    has_bans: bool = False
    priorities: tuple[int, ...] = ()

    def conditions(self) -> NetworkConditions:
        """Return how bad the network is apart from faults."""
        return NetworkConditions(
            delay_seconds=self.delay_seconds,
            lost_requests=self.lost_requests,
            lost_answers=self.lost_answers,
            late_requests=self.late_messages,
            late_answers=self.late_messages,
            late_seconds=self.late_seconds,
            lost_notifications=self.lost_notifications,
            repeated_notifications=self.repeated_notifications,
        )

    def with_faults(self, faults: Sequence[RunFault]) -> "RunPlan":
        """Return the same plan with other faults."""
        return replace(self, faults=tuple(faults))


def expand(seed: int, *, fault_seconds: float = 120.0) -> RunPlan:
    """Return the plan of *seed*: each has another part of all kinds of faults."""
    chance = random.Random(f"plan {seed}")  # noqa: S311  not for secrets: it repeats itself
    processes = chance.choice((2, 3, 3, 4))
    # With a rate that differs by less than the margin allows; without drift no run would show that
    # a margin is missing.
    rates = tuple(round(chance.uniform(0.93, 1.07), 3) for _ in range(processes))
    kinds = [kind for kind in _USUAL if chance.random() < 0.6] or [RunFaultKind.CUT_OFF]
    plan = RunPlan(
        seed=seed,
        fault_seconds=fault_seconds,
        session_seconds=6.0,
        operation_seconds=chance.choice((2.0, 5.0)),
        dialect=chance.choice(list(DIALECTS)),
        rates=rates,
        interruptions=chance.choice((0.0, 0.01, 0.05)),
        delay_seconds=chance.choice((0.0005, 0.005, 0.05)),
        lost_requests=chance.choice((0.0, 0.05)),
        lost_answers=chance.choice((0.0, 0.05)),
        late_messages=chance.choice((0.0, 0.1, 0.3)),
        late_seconds=chance.choice((3.0, 15.0)),
        lost_notifications=chance.choice((0.0, 0.1)),
        repeated_notifications=chance.choice((0.0, 0.2)),
        faults=tuple(_faults(chance, kinds, processes, fault_seconds)),
        demotions=chance.choice((None, 0.002)),
        has_locks=chance.choice((False, True)),
        has_items=chance.choice((False, False, True)),
    )
    faults = [*plan.faults, *_lost_joins(seed, processes, fault_seconds)]
    faults += _late_renewals(seed, processes, fault_seconds)
    if plan.has_items:
        faults += _lost_values(seed, processes, fault_seconds)
        faults += _late_polls(plan)
        # Two members compare their clocks over a rebalance timeout, for which the margin is
        # smaller.
        rates = tuple(round(1 + (rate - 1) / 4, 4) for rate in rates)
    return replace(plan, rates=rates, faults=tuple(sorted(faults, key=attrgetter("at"))))


def expand_with_operators(seed: int) -> RunPlan:
    """Return the plan of *seed* with operators, and without what has nothing to do with them.

    In some the candidates have priorities.
    """
    chance = random.Random(f"operators {seed}")  # noqa: S311  not for secrets: it repeats itself
    plan = replace(expand(seed), has_locks=False, has_items=False)
    operators = chance.choice((1, 1, 2))
    priorities = tuple(chance.choice((0, 0, 5, 100)) for _ in plan.rates)
    has_priorities = chance.choice((False, True))
    return replace(plan, operators=operators, priorities=priorities if has_priorities else ())


def expand_with_bans(seed: int) -> RunPlan:
    """Return the plan of *seed* with operators who ban members, and do nothing else."""
    return replace(expand_with_operators(seed), has_bans=True, priorities=())


def _lost_joins(seed: int, processes: int, until: float) -> Iterator[RunFault]:
    """Yield faults of members that join again and get no answer, while their data changes.

    Some are the last faults of their run: no further update corrects what they leave behind. The
    faults have chances of their own, so that the rest of a plan does not depend on them.
    """
    chance = random.Random(f"joins {seed}")  # noqa: S311  not for secrets: it repeats itself
    for _ in range(chance.choice((0, 1, 2))):
        at, seconds = round(chance.uniform(5.0, until), 3), chance.choice((4.0, 8.0, 16.0))
        target = chance.randrange(processes)
        yield RunFault(RunFaultKind.UNANSWERED, at, seconds, target)
        yield RunFault(RunFaultKind.EXPIRE, round(at + chance.uniform(0.0, 1.0), 3), 0.5, target)
    if chance.random() < 0.5:
        at, target = round(until - chance.uniform(6.0, 9.0), 3), chance.randrange(processes)
        yield RunFault(RunFaultKind.UNANSWERED, at, 9.0, target)
        yield RunFault(RunFaultKind.EXPIRE, round(at + 0.1, 3), 0.5, target)


def _late_renewals(seed: int, processes: int, until: float) -> Iterator[RunFault]:
    """Yield faults of processes that stand still while the answer to a renewal is on its way.

    They go on after the lease has ended by their clock, and before the renewed one would end. The
    faults have chances of their own, so that the rest of a plan does not depend on them.
    """
    chance = random.Random(f"renewals {seed}")  # noqa: S311  not for secrets: it repeats itself
    for _ in range(chance.choice((0, 1, 2))):
        at, target = round(chance.uniform(8.0, until), 3), chance.randrange(processes)
        yield RunFault(RunFaultKind.SLOW, at, 6.0, target)
        # A renewal is sent every 2 s, and given up after 2 s; a lease lasts for 5 s or more.
        yield RunFault(RunFaultKind.PAUSE, round(at + 2.0, 3), 3.0, target)


def _lost_values(seed: int, processes: int, until: float) -> Iterator[RunFault]:
    """Yield faults of members that renew their sessions and do not know the state of their group.

    Meanwhile another member is replaced, so that a round begins without them. The faults have
    chances of their own, so that the rest of a plan does not depend on them.
    """
    chance = random.Random(f"values {seed}")  # noqa: S311  not for secrets: it repeats itself
    for _ in range(chance.choice((0, 1, 2))):
        at, seconds = round(chance.uniform(5.0, until), 3), chance.choice((5.0, 15.0, 30.0))
        target, other = chance.sample(range(processes), 2)
        yield RunFault(RunFaultKind.NO_VALUES, at, seconds, target)
        yield RunFault(RunFaultKind.KILL, round(at + chance.uniform(0.0, 5.0), 3), 1.0, other)


def _late_polls(plan: RunPlan) -> Iterator[RunFault]:
    """Yield faults of members that leave because they poll too late, and stand still just then.

    So the others divide their items while they believe what they have read before they left. The
    faults have chances of their own, so that the rest of a plan does not depend on them.
    """
    chance = random.Random(f"polls {plan.seed}")  # noqa: S311  not for secrets: it repeats itself
    session = DIALECTS[plan.dialect].granted_seconds or plan.session_seconds
    for _ in range(chance.choice((0, 1, 2))):
        at, target = (
            round(chance.uniform(15.0, plan.fault_seconds), 3),
            chance.randrange(len(plan.rates)),
        )
        leaves_at = at + session + SECONDS_ABOVE_SESSION
        # The last poll may last for a second more, and clocks differ.
        stops_at = round(leaves_at + chance.uniform(0.0, 1.2), 3)
        yield RunFault(RunFaultKind.NO_POLLS, at, 20.0, target)
        yield RunFault(RunFaultKind.PAUSE, stops_at, 10.0, target)


def _faults(
    chance: random.Random, kinds: Sequence[RunFaultKind], processes: int, until: float
) -> list[RunFault]:
    """Return bursts of faults: one alone breaks little."""
    faults, at = list[RunFault](), 5.0
    while (at := at + chance.expovariate(1 / 10)) < until:
        target = LEADER if chance.random() < 0.5 else chance.randrange(processes)
        for _ in range(chance.choice((1, 1, 2, 3))):
            seconds = chance.choice((0.5, 3.0, 7.0, 14.0)) * chance.uniform(0.7, 1.3)
            faults.append(RunFault(chance.choice(kinds), round(at, 3), round(seconds, 3), target))
            at += chance.uniform(0.0, 2.0)
    return faults


def to_json(plan: RunPlan) -> str:
    """Return *plan* as text for `from_json`."""
    fields = asdict(plan)
    fields["faults"] = [
        [fault.kind.name, fault.at, fault.seconds, fault.target] for fault in plan.faults
    ]
    return json.dumps(fields, indent=1)


def from_json(text: str) -> RunPlan:
    """Return the plan that `to_json` has written.

    Raises:
        ValueError: *text* is no such plan.
    """
    try:
        fields: dict[str, Any] = json.loads(text)
        faults = tuple(RunFault(RunFaultKind[kind], *rest) for kind, *rest in fields.pop("faults"))
        DIALECTS[fields["dialect"]]
        fields["rates"] = tuple(fields["rates"])
        fields["priorities"] = tuple(fields.get("priorities", ()))
        return RunPlan(**fields, faults=faults)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not a plan of a simulation: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else str(error)
