"""Random schedules of the protocol: crashes, pauses, lost answers, late writes, wrong views.

Every process runs the shipped decisions (`process.py`) against one store. Nothing that the protocol
must not depend on can be relied on here: sessions end at any moment, clocks jump, several processes
believe that they lead, members are missing from readings of the group. Checked at every step:

* no two members may pass the guards of a write for one item;
* of one generation only one publication is taken up, with shares that are disjoint;
* the application is called in the promised order.

And after a run, when the faults have stopped: the group comes to rest with every item held once,
all changes of the state were among the five, no generation was committed twice, and of the parts
only outdated ones are gone.

    python -m tests.unit.coordinator.model --schedules 4000
"""

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from typing_extensions import override

from kip30.coordinator import decisions, keys
from kip30.coordinator.config import GroupConfig
from kip30.coordinator.decisions import OwnGeneration, StateReading
from kip30.coordinator.packing import PackingLimits, part_of
from kip30.coordinator.records import Assignment, PresentMember
from kip30.coordinator.state_transitions import check_transition
from kip30.errors import FencedError, GroupError

from .application import Application
from .model_store import KEYS, ModelStore, RefusedError
from .process import LostAnswerError, Process, Run, Timings, profile

T = TypeVar("T")

ITEMS = 7
STEPS = 3_500
STEPS_TO_REST = 20_000
_LIMITS = (PackingLimits(), PackingLimits(inline_bytes=0), PackingLimits(100, 400))
"""Inline, in one part, and in several."""


TICKS = Timings(
    session=60.0,
    margin=10.0,
    config=GroupConfig(
        rebalance_timeout_seconds=300.0,
        heartbeat_seconds=20.0,
        initial_delay_seconds=5.0,
        coalesce_seconds=1.0,
        static_grace_seconds=60.0,
    ),
)
"""One tick is a step of some process."""


class Adversary(Process):
    """A process whose requests, clock and session are at the mercy of the schedule."""

    timings = TICKS
    schedule: "Schedule"

    def start(self, schedule: "Schedule") -> None:
        self.schedule = schedule
        self.is_alive = True
        self._ahead = 0.0
        self._lead: Run[None] | None = None
        self._poll = self.poll()

    def step(self) -> None:
        if self.pause:
            self.pause -= 1
            return
        if self._lead is None and self.leads():
            self._lead = self.lead(next(self.schedule.epochs))
        if self._lead is not None and self.schedule.random.random() < 0.5:
            if next(self._lead, self) is self:
                self._lead = None
        elif next(self._poll, self) is self:
            self.is_over = True

    @override
    def now(self) -> float:
        if self.schedule.is_faulty and self.schedule.random.random() < 0.003:
            self._ahead += TICKS.rebalance  # safety rests on no clock
        return self.schedule.tick + self._ahead

    @override
    def request(
        self, effect: Callable[[], T], *, late: Callable[[], object] | None = None
    ) -> Run[T]:
        yield
        luck = self.schedule.random.random() if self.schedule.is_faulty and late else 1.0
        if luck < 0.02:
            assert late is not None
            self.schedule.late.append(late)
            raise LostAnswerError
        answer = effect()
        self.schedule.changed |= late is not None
        if luck < 0.04:
            raise LostAnswerError
        yield
        return answer

    @override
    def rest(self) -> Run[None]:
        yield
        self.facts = self.facts.read_group(None)
        yield from self.read_state()

    @override
    def session_ended(self) -> bool:
        is_gone = self.member_id not in self.store.members
        return is_gone and (self.schedule.random.random() < 0.3 or not self.schedule.is_faulty)

    @override
    def lease_deadline(self, sent_at: float) -> float:
        return float("inf")  # sessions end when the schedule ends them

    @override
    def seen_group(self) -> Iterable[PresentMember]:
        members = [*self.store.members.values()]
        if self.schedule.is_faulty and self.schedule.random.random() < 0.1:
            members = [one for one in members if self.schedule.random.random() < 0.7]
        return members

    @override
    def leads(self) -> bool:
        return self.schedule.believes(self)

    @override
    def took_up(self) -> None:
        self.schedule.note_share(self)


class Schedule:
    """One run, decided by its seed."""

    def __init__(self, seed: int, processes: int = 4) -> None:
        self.random = random.Random(seed)  # noqa: S311  a schedule is no secret
        self.is_cooperative = seed % 2 == 0
        self.is_faulty = True
        self.tick = 0
        self.changed = True
        self.errors: list[str] = []
        self.epochs = itertools.count(1)
        self.late: list[Callable[[], object]] = []
        self.store = ModelStore()
        self.all: list[Adversary] = []
        self._ids, self._nonces = itertools.count(), itertools.count()
        self._limits = self.random.choice(_LIMITS)
        # By generation: the publication that was taken up, and the items by instance.
        self._taken: dict[int, dict[str, tuple[str, frozenset[int]]]] = {}
        for _ in range(processes):
            self.add()

    def add(self, instance: str | None = None) -> None:
        member_id = f"m{next(self._ids)}"
        if instance is None and self.random.random() < 0.5:
            instance = f"i{member_id}"
        subscription = "some" if self.random.random() < 0.1 else "all"
        cooperative = self.is_cooperative
        application = Application(ITEMS, cooperative=cooperative, subscription=subscription)
        made = profile(member_id, TICKS, instance=instance, cooperative=cooperative)
        process = Adversary(self.store, made, application, self._nonces, self._limits)
        process.start(self)
        self.all.append(process)

    def live(self) -> list[Adversary]:
        return [one for one in self.all if one.is_alive and not one.is_over]

    def believes(self, process: Adversary) -> bool:
        live = self.live()
        if process is (live[0] if live else None):
            return not self.is_faulty or self.random.random() < 0.97
        return self.is_faulty and self.random.random() < 0.15

    def run(self) -> "Schedule":
        for _ in range(STEPS):
            self._disturb()
            self._step(self.live())
            if self.errors:
                return self
        self._stop_faults()
        for _ in range(STEPS_TO_REST):
            if self._is_at_rest():
                break
            self._step(self.live())
            if self.errors:
                return self
        else:
            self.errors.append("the group does not come to rest")
        self._check_history()
        return self

    def _step(self, processes: list[Adversary]) -> None:
        self.tick += 1
        self._end_sessions()
        if self.late and self.random.random() < 0.1:
            self._apply_late()
        process = self.random.choice(processes)
        if process.is_alive and not process.is_over:
            try:
                process.step()
            except (AssertionError, GroupError) as error:
                self.errors.append(str(error))
        if self.changed:
            self.changed = False
            self._check_guards()

    def _stop_faults(self) -> None:
        self.is_faulty = False
        self.late.clear()
        for process in self.all:
            process.pause = 0

    # -- faults

    def _apply_late(self) -> None:
        late = self.late.pop(self.random.randrange(len(self.late)))
        with suppress(RefusedError):
            late()
        self.changed = True

    def _end_sessions(self) -> None:
        for process in self.all:
            has_ended = process.member_id in self.store.members and (
                (not process.is_alive and self.random.random() < 0.03)
                or (process.pause > 10 and self.random.random() < 0.01)
                or (self.is_faulty and self.random.random() < 0.0003)
            )
            if has_ended:
                del self.store.members[process.member_id]

    def _disturb(self) -> None:
        luck, live = self.random.random(), self.live()
        if not live:
            self.add()
        elif luck < 0.010:
            self.random.choice(self.all).pause = self.random.randint(5, 80)
        elif luck < 0.013 and len(live) > 1:
            self.random.choice(live).is_alive = False
        elif luck < 0.017 and len(live) < 7:
            self.add()
        elif luck < 0.019 and len(live) < 9:
            self._replace_static(live)

    def _replace_static(self, live: list[Adversary]) -> None:
        static = [one for one in live if one.is_static]
        if not static:
            return
        old = self.random.choice(static)
        self.add(old.instance)
        if self.random.random() < 0.5:
            old.is_alive = False
        else:
            old.pause = self.random.randint(0, 80)

    # -- checks

    def note_share(self, process: Adversary) -> None:
        self.changed = True
        own = process.facts.own
        assert own is not None
        held = frozenset(process.application.held)
        seen = self._taken.setdefault(own.number, {})
        for instance, (attempt, items) in seen.items():
            if attempt != own.attempt:
                self.errors.append("two publications of one generation were taken up")
            elif instance != process.instance and items & held:
                self.errors.append("two members of one generation took up one item")
        seen[process.instance] = (own.attempt, held)

    def _check_guards(self) -> None:
        able = Counter(
            item
            for process in self.all
            if process.application.held and self._passes(process)
            for item in process.application.held
        )
        if any(times > 1 for times in able.values()):
            self.errors.append("two members pass the guards for one item")

    def _passes(self, process: Adversary) -> bool:
        """Return whether a guarded write would be done now, at once or after one look."""
        own = process.facts.own
        if own is None:
            return False
        if self._holds(process, own):
            return True
        store = self.store
        reading = StateReading(
            store.state, store.versions.get(KEYS.state), 0.0, store.holders.get(process.instance)
        )
        try:
            again = decisions.after_refusal(
                own,
                reading,
                self.assignment(process.instance),
                member_id=process.member_id,
                is_static=process.is_static,
            )
        except FencedError:
            return False
        return self._holds(process, again)

    def _holds(self, process: Adversary, own: OwnGeneration) -> bool:
        claim = process.facts.claim
        wanted = decisions.guards(own, KEYS, process.instance, claim)
        return all(self.store.versions.get(key) == version for key, version in wanted.items())

    def assignment(self, instance: str) -> Assignment | None:
        state = self.store.state
        if state is None:
            return None
        if not state.parts:
            return state.inline.get(instance)
        part = self.store.part(state.attempt, part_of(instance, state.parts)) or {}
        found = part.get(instance)
        if isinstance(found, int):
            found = (self.store.part(state.attempt, found) or {}).get(instance)
        return found if isinstance(found, Assignment) else None

    def _is_at_rest(self) -> bool:
        live, state = self.live(), self.store.state
        if not live:
            return True
        if state is None or state.is_preparing or state.follow_up:
            return False
        held = Counter(item for one in live for item in one.application.held)
        return (
            held == Counter(range(ITEMS))
            and len(live) == len({one.instance for one in live})
            and {one.member_id for one in live} == {*self.store.members}
            and all(
                one.facts.own is not None and one.facts.own.attempt == state.attempt for one in live
            )
        )

    def _check_history(self) -> None:
        history = self.store.history
        committed: dict[int, str] = {}
        for before, state in itertools.pairwise([None, *history]):
            assert state is not None
            try:
                check_transition(before, state)
            except GroupError as error:
                self.errors.append(str(error))
            if state.is_preparing:
                continue
            if committed.setdefault(state.generation, state.attempt) != state.attempt:
                self.errors.append("a generation was committed twice")
        names = [key.rpartition("/")[2] for key in self.store.parts]
        newest = history[-1].generation if history else 0
        if any(keys.is_outdated(name, newest - 1) for name in names):
            self.errors.append("outdated parts are left")
        if any(self.assignment(one.instance) is None for one in self.live()):
            self.errors.append("the newest parts are gone")


def failures(schedules: Iterable[int]) -> dict[int, str]:
    """Run a schedule for each seed; return the first error of each that failed."""
    return {seed: run.errors[0] for seed in schedules if (run := Schedule(seed).run()).errors}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Run random schedules of the coordinator.")
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args(arguments)
    begin, failed, generations = time.monotonic(), Counter[str](), 0
    for seed in range(given.first, given.first + given.schedules):
        run = Schedule(seed).run()
        generations += run.store.state.generation if run.store.state else 0
        if run.errors:
            failed[run.errors[0]] += 1
            print(f"seed {seed}: {run.errors[0]}", flush=True)  # noqa: T201  its output
    seconds = time.monotonic() - begin
    print(  # noqa: T201  its output
        f"{failed.total()} of {given.schedules} schedules failed;"
        f" {generations / given.schedules:.1f} generations each, {seconds:.0f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
