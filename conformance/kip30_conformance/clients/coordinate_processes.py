"""Real `kip30 coordinate` processes of one group, and the lines of their commands."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

from kip30.config import Written
from kip30_conformance.clients.run_processes import Arena, Runner, Tick
from kip30_conformance.polling import eventually

GROUP = "g"

_ITEMS = "items="


class RunPeriod(NamedTuple):
    """One run of a command for a share, and from when to when a process of it worked.

    Attributes:
        first: The first tick, of `time.monotonic`.
        last: The last one so far.
        member: The member id.
        since: The generation that gave the share.
        run: When the command was started; a restart for the same share is another one.
        items: The items.
    """

    first: float
    last: float
    member: str
    since: int
    run: int
    items: frozenset[int]


class SharingArena(Arena):
    """Runners that divide numbers, and their log."""

    def __init__(self, folder: Path, properties: Mapping[str, Written], *, shards: int) -> None:
        """Let runners divide *shards* numbers."""
        super().__init__(folder, properties)
        self.shards = shards
        # The ticks that were counted: how many, and of each run the first, the last, the items.
        self._counted = 0
        self._times: dict[tuple[str, int, int], tuple[float, float]] = {}
        self._items: dict[tuple[str, int, int], frozenset[int]] = {}
        self.words = ("coordinate", "--group", GROUP, f"--shards={shards}")

    def periods(self) -> list[RunPeriod]:
        """Return all spells of work so far, by their beginning."""
        ticks = self.ticks()
        for tick in ticks[self._counted :]:
            key = (tick.candidate, tick.epoch, tick.run)
            first, last = self._times.get(key, (tick.at, tick.at))
            self._times[key] = (min(first, tick.at), max(last, tick.at))
            if tick.what.startswith(_ITEMS):
                noted = tick.what.removeprefix(_ITEMS).split(",")
                self._items[key] = frozenset(map(int, noted))
        self._counted = len(ticks)
        return sorted(
            RunPeriod(*self._times[member, since, run], member, since, run, items)
            for (member, since, run), items in self._items.items()
        )

    def period(self, earlier: RunPeriod) -> RunPeriod:
        """Return the present state of the *earlier* spells."""
        return next(one for one in self.periods() if one.run == earlier.run)

    def newest(self) -> dict[int, RunPeriod]:
        """Return the spell of each item that began last."""
        return {item: period for period in self.periods() for item in period.items}

    def await_items(self, *, after: float = 0.0, members: int = 0) -> dict[int, RunPeriod]:
        """Wait until all items are worked on *after* that time, by *members* members unless 0.

        A run of whose items another run has taken over one is about to be restarted.
        """

        def find() -> dict[int, RunPeriod]:
            found = self.newest()
            working = {item for item, period in found.items() if period.last > after}
            by = {period.member for period in found.values()}
            has_all = len(working) == self.shards and len(by) == (members or len(by))
            runs = found.values()
            is_settled = all(found[item] == run for run in runs for item in run.items)
            return found if has_all and is_settled else {}

        return eventually(find, within=60, what=f"all items with {members or 'any'} members")

    def await_even_items(self, *, members: int) -> dict[int, RunPeriod]:
        """Wait until *members* members work on all items, none on two more than another.

        So no item is about to move that has a command of its own.
        """

        def find() -> dict[int, RunPeriod]:
            found = self.await_items(members=members)
            counts = Counter(period.member for period in found.values()).values()
            return found if max(counts) - min(counts) <= 1 else {}

        return eventually(find, within=60, what=f"{members} members have as many items")

    def await_next_runs(
        self, struck: RunPeriod, *, after: float, members: int = 0
    ) -> dict[int, RunPeriod]:
        """Wait until another run has each item of *struck*, and then until all are worked on.

        So a tick that a dying command still writes is not mistaken for one of its successor's. Work
        that the member of *struck* had started before the time *after* counts as struck, too.
        """

        def is_next(run: RunPeriod) -> bool:
            is_struck = run.member == struck.member and run.first <= after
            return run.first > struck.first and not is_struck

        def go_on() -> bool:
            found = self.newest()
            return all(is_next(found[item]) for item in struck.items)

        eventually(go_on, within=60, what=f"other runs have the items of {struck}")
        return self.await_items(after=time.monotonic(), members=members)

    def now(self) -> float:
        """Return when the last tick was."""
        return max((period.last for period in self.periods()), default=0.0)

    @override
    def is_silent(self, seconds: float) -> bool:
        return time.monotonic() - self.now() > seconds

    @override
    def runner_of(self, tick: Tick) -> Runner:
        return self.runner_with(tick.candidate)

    def runner_with(self, member: str) -> Runner:
        """Return the runner whose member has that id."""
        return self.runners[member.rpartition("-")[0]]

    @override
    def expect_no_overlap(self) -> None:
        """Require each item's runs to follow one another, including a share's restarts."""
        for item, earlier, later in self._pairs():
            assert earlier.last < later.first, (item, earlier, later)

    def expect_no_restart(self) -> None:
        """Require each item's next run to be another member's."""
        for item, earlier, later in self._pairs():
            assert earlier.member != later.member, (item, earlier, later)

    def _pairs(self) -> Iterator[tuple[int, RunPeriod, RunPeriod]]:
        """Yield each two runs of an item that began one after the other."""
        by_item: defaultdict[int, list[RunPeriod]] = defaultdict(list)
        for period in self.periods():
            for item in period.items:
                by_item[item].append(period)
        for item, periods in by_item.items():
            for earlier, later in pairwise(periods):
                yield item, earlier, later
