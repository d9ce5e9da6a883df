"""A timed model: may two members ever work on one item, if each stops at its own deadline?

Work that is no guarded write rests on clocks, so here clocks run equally fast, sessions end when
they must, and readings are complete. Processes are stopped for up to two rebalance timeouts, their
readings are delayed or fail to arrive at all, leaders change, and static members are replaced by
processes that wait for their predecessor. A process works on what its application holds while
`MemberFacts.deadline` has not passed, also while it is stopped: the guard of its work goes by the
clock alone.

    python -m tests.unit.coordinator.deadline_model --schedules 1000
"""

import argparse
import itertools
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from typing_extensions import override

from kip30.coordinator.config import GroupConfig
from kip30.coordinator.packing import PackingLimits
from kip30.coordinator.records import MemberRecord

from .application import Application
from .model_store import ModelStore
from .process import Process, Run, Timings, profile

T = TypeVar("T")

ITEMS = 6
TICKS = 6_000
_TERM = 700
_MOST_DELAY = 6
_MOST_WORK = 30


TIMINGS = Timings(
    session=60.0,
    margin=2.0,
    config=GroupConfig(
        rebalance_timeout_seconds=100.0,
        heartbeat_seconds=12.0,
        initial_delay_seconds=5.0,
        coalesce_seconds=2.0,
        static_grace_seconds=20.0,
    ),
)


class Timed(Process):
    """A process whose requests take time, and whose session is renewed by the clock."""

    timings = TIMINGS
    run: "TimedRun"

    def start(self, run: "TimedRun") -> None:
        self.run = run
        self.is_alive = True
        self.deaf = 0
        self._next_beat = 0.0
        self._runs: dict[str, Iterator[None]] = {"poll": self.poll(), "renew": self._renewing()}

    def tick(self) -> None:
        """Live through one tick."""
        if not self.is_alive or self.is_over:
            return
        if self.pause:
            self.pause -= 1
            return
        chance = self.run.random.random
        if chance() < 0.002:
            self.pause = self.run.random.randint(1, 2 * int(TIMINGS.rebalance))
        if self.deaf:
            self.deaf -= 1
        elif chance() < 0.002:
            self.deaf = self.run.random.randint(1, 3 * int(TIMINGS.rebalance))
        if self.leads() and "lead" not in self._runs:
            self._runs["lead"] = self.lead(next(self.run.epochs))
        for name, run in [*self._runs.items()]:
            if next(run, self) is self:
                del self._runs[name]

    def works_on(self) -> frozenset[int]:
        """Return the items that this process works on now."""
        is_valid = self.run.now < self.facts.deadline
        return frozenset(self.application.held) if is_valid else frozenset()

    @override
    def now(self) -> float:
        return self.run.now

    @override
    def request(self, effect: Callable[[], T], *, late: object = None) -> Run[T]:
        yield from self._take(_MOST_DELAY)
        answer = effect()
        yield from self._take(_MOST_DELAY)
        return answer

    @override
    def rest(self) -> Run[None]:
        yield
        if self.deaf:
            return
        if self.run.random.random() < 0.01:
            self.facts = self.facts.wanting_rejoin()
        if self.run.now >= self._next_beat or self.run.random.random() < 0.2:
            self._next_beat = self.run.now + TIMINGS.config.heartbeat_seconds
            self.facts = self.facts.read_group(None)
            yield from self.read_state()

    @override
    def session_ended(self) -> bool:
        return self.member_id not in self.store.members or self.run.now >= self.facts.lease_deadline

    @override
    def enter(self, record: MemberRecord) -> None:
        super().enter(record)
        self.run.sessions[self.member_id] = self.run.now + TIMINGS.session

    @override
    def give_up(self) -> Run[None]:
        yield from self._take(_MOST_WORK)

    @override
    def lease_deadline(self, sent_at: float) -> float:
        return sent_at + TIMINGS.session - TIMINGS.margin

    @override
    def leads(self) -> bool:
        return self.run.boss() is self or self.run.random.random() < 0.02

    def _take(self, most: int) -> Run[None]:
        for _ in range(self.run.random.randint(0, most)):
            yield

    def _renewing(self) -> Run[None]:
        while True:
            for _ in range(int(TIMINGS.session) // 4):
                yield
            sent_at = self.run.now
            renewed = yield from self.request(self._renew)
            # A lease that was over stays over.
            if (
                renewed
                and self.facts.record is not None
                and self.run.now < self.facts.lease_deadline
            ):
                deadline = self.lease_deadline(sent_at)
                self.facts = replace(self.facts, lease_deadline=deadline)

    def _renew(self) -> bool:
        if self.member_id not in self.store.members:
            return False
        self.run.sessions[self.member_id] = self.run.now + TIMINGS.session
        return True


class TimedRun:
    """One run, decided by its seed."""

    def __init__(self, seed: int, processes: int = 4) -> None:
        self.random = random.Random(seed)  # noqa: S311  a schedule is no secret
        self.is_cooperative = seed % 2 == 0
        self.now = 0
        self.epochs = itertools.count(1)
        # When the session of each member ends unless it is renewed.
        self.sessions: dict[str, float] = {}
        self.store = ModelStore()
        self.all: list[Timed] = []
        self.worked = 0
        self._ids, self._nonces = itertools.count(), itertools.count()
        for _ in range(processes):
            self.add(f"i{len(self.all)}" if self.random.random() < 0.5 else None)

    def add(self, instance: str | None) -> None:
        cooperative = self.is_cooperative
        made = profile(
            f"m{next(self._ids)}",
            TIMINGS,
            instance=instance,
            cooperative=cooperative,
            waits=instance is not None,
        )
        application = Application(ITEMS, cooperative=cooperative)
        limits = self.random.choice((PackingLimits(), PackingLimits(100, 400)))
        process = Timed(self.store, made, application, self._nonces, limits)
        process.start(self)
        self.all.append(process)

    def live(self) -> list[Timed]:
        return [one for one in self.all if one.is_alive and not one.is_over]

    def boss(self) -> Timed:
        live = self.live()
        return live[self.now // _TERM % len(live)]

    def overlap(self) -> str:
        """Run, and return what two members worked on at one moment; empty if there is none."""
        for self.now in range(TICKS):
            for member_id, until in [*self.sessions.items()]:
                if until <= self.now:
                    del self.sessions[member_id]
                    self.store.members.pop(member_id, None)
            self._disturb()
            for process in self.all:
                process.tick()
            working = [item for process in self.all for item in process.works_on()]
            self.worked += len(working)
            if len(working) != len({*working}):
                return f"two members work on one item at {self.now}"
        return ""

    def _disturb(self) -> None:
        if self.random.random() >= 0.001:
            return
        old = self.random.choice(self.live())
        old.is_alive = self.random.random() < 0.5
        old.pause = self.random.randint(0, 2 * int(TIMINGS.rebalance))
        if old.is_static:
            self.add(old.instance)
        elif not old.is_alive:
            self.add(None)


def overlaps(schedules: Iterable[int]) -> dict[int, str]:
    """Run a schedule for each seed; return the overlap of each that has one."""
    return {seed: found for seed in schedules if (found := TimedRun(seed).overlap())}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Look for overlaps of work without guards.")
    parser.add_argument("--schedules", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args(arguments)
    begin, failed, worked, generations = time.monotonic(), 0, 0, 0
    for seed in range(given.first, given.first + given.schedules):
        run = TimedRun(seed)
        found = run.overlap()
        worked += run.worked
        generations += run.store.state.generation if run.store.state else 0
        if found:
            failed += 1
            print(f"seed {seed}: {found}", flush=True)  # noqa: T201  its output
    share = worked / (given.schedules * TICKS * ITEMS)
    print(  # noqa: T201  its output
        f"{failed} of {given.schedules} schedules overlap; {generations / given.schedules:.0f}"
        f" generations each, items worked on {share:.0%} of the time,"
        f" {time.monotonic() - begin:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
