"""Time that assignors take: ``python -m benchmarks.coordinator.assigning [--rounds N]``.

Divides 10,000 items, of 100 topics, among 1,000 members: from nothing, after 100 of them have gone,
and after 100 have come back. With *equal* topics every member subscribes to all of them; with
*differing* ones to 50, 10 or 3 of the 100; with *scattered* ones to 2 to 5 of 1,000 topics.
Prints the medians of the rounds: the process's CPU time, by which the targets go, because nothing
waits for anything, and the time by the wall clock. Ends with 1 if a target was missed.
"""

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from benchmarks.report import machine
from benchmarks.report.figure import Figure
from benchmarks.timing import Spent, spent
from kip30.coordinator.assignors import (
    Assignment,
    Assignor,
    ConnectState,
    CooperativeStickyAssignor,
    EagerConnectAssignor,
    IncrementalConnectAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Subscriber,
    WorkUnit,
)

MEMBERS, GONE, ITEMS = 1_000, 100, 10_000
TOPICS = {"equal": 100, "differing": 100, "scattered": 1_000}
SUBSCRIBED = {"equal": (100,), "differing": (50, 10, 3), "scattered": (2, 3, 4, 5)}
PLAIN_MS, SEARCHING_MS = 100.0, 1_000.0


def topics(count: int) -> dict[str, int]:
    return {f"topic-{number:03}": ITEMS // count for number in range(count)}


class Group:
    """Members, and what they own after the steps so far."""

    def __init__(self, kind: str, assignor: Assignor) -> None:
        chance = random.Random(30)  # noqa: S311  topics are no secret
        sizes = SUBSCRIBED[kind]
        self._assignor = assignor
        self._topics = topics(TOPICS[kind])
        names = sorted(self._topics)
        self._members = {
            f"member-{number:03}": frozenset(chance.sample(names, sizes[number % len(sizes)]))
            for number in range(MEMBERS)
        }
        self._gone = set(chance.sample(sorted(self._members), GONE))
        self._owned: Assignment = {}

    def steps(self) -> Iterator[tuple[str, Spent]]:
        """Yield what each step took; a cooperative group then settles in a second round."""
        for step, absent in (("from nothing", ()), ("100 gone", self._gone), ("100 back", ())):
            present = [member for member in self._members if member not in absent]
            yield step, spent(self._assigning(present))
            self._assigning(present)()

    def _assigning(self, present: Sequence[str]) -> Callable[[], None]:
        subscribers = [
            Subscriber(
                member_id=member,
                topics=self._members[member],
                owned=self._owned.get(member, ()),
                generation=1,
            )
            for member in present
        ]

        def assign() -> None:
            self._owned = self._assignor.assign(self._topics, subscribers)

        return assign


def _steps(kind: str, assignor: Assignor) -> Iterator[tuple[str, Spent]]:
    return Group(kind, assignor).steps()


def connect() -> Iterator[tuple[str, Spent]]:
    """Yield the same for 10,000 units of Connect, of 100 connectors."""
    configured = {name: tasks - 1 for name, tasks in topics(100).items()}
    members = [f"worker-{number:03}" for number in range(MEMBERS)]
    yield "eager", spent(lambda: EagerConnectAssignor().assign(configured, members))
    rounds = _ConnectRounds(configured)
    for step, present in (("from nothing", members), ("100 gone", members[GONE:])):
        yield f"incremental, {step}", spent(partial(rounds.run, present))
    rounds.run(members[GONE:])
    yield "incremental, 100 back", spent(lambda: rounds.run(members))


class _ConnectRounds:
    def __init__(self, configured: Mapping[str, int]) -> None:
        self._configured = configured
        self._assignor = IncrementalConnectAssignor(max_delay_seconds=0.0)
        self._doing: dict[str, set[WorkUnit]] = {}
        self._state = ConnectState()

    def run(self, present: Sequence[str]) -> None:
        doing = {worker: self._doing.get(worker, set()) for worker in present}
        done = self._assignor.assign(
            self._configured,
            doing,
            state=self._state,
            completed=self._state.generation,
            now_seconds=0.0,
        )
        self._state = done.state
        self._doing = {
            worker: (units | set(done.started[worker])) - set(done.revoked[worker])
            for worker, units in doing.items()
        }


def measure(rounds: int) -> Iterator[tuple[str, Figure, Figure]]:
    """Yield what is divided how, and the CPU's and the wall clock's figure of each step."""
    for kind in TOPICS:
        for assignor in (
            RangeAssignor(),
            RoundRobinAssignor(),
            StickyAssignor(),
            CooperativeStickyAssignor(),
        ):
            searching = assignor.cooperative or (assignor.name == "sticky" and kind != "equal")
            limit = SEARCHING_MS if searching else PLAIN_MS
            subject = f"{assignor.name}, {kind}"
            yield from _figures(subject, partial(_steps, kind, assignor), rounds, limit)
    yield from _figures("connect", connect, rounds, SEARCHING_MS)


def _figures(
    subject: str,
    steps: Callable[[], Iterator[tuple[str, Spent]]],
    rounds: int,
    limit: float,
) -> Iterator[tuple[str, Figure, Figure]]:
    samples: dict[str, list[Spent]] = {}
    for _ in range(rounds):
        for step, one in steps():
            samples.setdefault(step, []).append(one)
    for step, those in samples.items():
        wall, cpu = ([seconds * 1e3 for seconds in one] for one in zip(*those, strict=True))
        yield (
            subject,
            Figure.median(step, cpu, "ms", at_most=limit),
            Figure.median(step, wall, "ms"),
        )


def main() -> int:
    parser = argparse.ArgumentParser(prog="assigning", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    met = True
    before = machine.load()
    for subject, cpu, wall in measure(options.rounds):
        met = met and cpu.met is not False
        print(
            f"{subject:30} {cpu.name:24} {cpu.measured:>10} {cpu.target:8}"
            f" wall clock {wall.measured:>10}",
            flush=True,
        )
    print(f"load: {before:.1f} before, {machine.load():.1f} after")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
