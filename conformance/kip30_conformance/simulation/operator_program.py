"""A process of an operator: at random, it pauses the service, ends terms, and bans members."""

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from kip30 import BYTES, Kip30Error, OutcomeUnknownError, PluginLocator
from kip30.driver.records import new_nonce
from kip30.operations import (
    HOLD_SECONDS,
    admit,
    evict,
    pause_service,
    resume_service,
    step_down_leader,
)
from kip30.runtime.directives import (
    Directives,
    StepDown,
    decode_directives,
    directives_key,
    encode_directives,
)
from kip30.runtime.resolution import Configuration
from kip30_conformance.simulation.present import simulation
from kip30_conformance.simulation.processes import SimulatedProcess
from kip30_conformance.simulation.scheduler import Simulation

_SECONDS_BETWEEN = 5.0
_SECONDS_PAUSED = 8.0
_MOST_PAUSED_SECONDS = 20.0
_WAIT_SECONDS = 15.0
_RETRY_SECONDS = 0.5
_DAY_SECONDS = 86_400.0
_LEFT_BEHIND = 0.3
"""Share of the operators that leave a directive behind which no candidate can fulfil."""


@dataclass
class Pausing:
    """The time in which a service was certainly paused, or a member banned.

    Attributes:
        since: When that was acknowledged; infinite before that.
        until: When an operator began to end or replace it, or when it ends by itself.
    """

    since: float = math.inf
    until: float = math.inf


@dataclass
class WrittenPauses:
    """All pauses of the service, or all bans of one member.

    Attributes:
        written: Those that were sent.
        changing: Number of operators that are about to write, end or replace one.
    """

    written: list[Pausing] = field(default_factory=list[Pausing])
    changing: int = 0

    @contextmanager
    def change(self, now: Callable[[], float]) -> Generator[None]:
        """Note that all may be ended or replaced in the block, also those under way."""
        for one in self.written:
            one.until = min(one.until, now())
        self.changing += 1
        try:
            yield
        finally:
            self.changing -= 1
            for one in self.written:
                if one.since == math.inf:  # not acknowledged: this may have replaced it
                    one.until = -math.inf

    def acknowledged(self, one: Pausing, now: float) -> None:
        """Note that *one* was written; another operator may have ended it already."""
        one.since = now
        if self.changing > 1:
            one.until = -math.inf


@dataclass
class HandingOver:
    """The time in which a hand-over may have named a candidate.

    Attributes:
        successor: The candidate.
        since: When the request was sent.
        until: When it was certainly cleared; infinite if that is not known.
    """

    successor: str
    since: float
    until: float = math.inf


@dataclass
class DirectiveHistory:
    """The directives of all operators.

    Attributes:
        pauses: The pauses of the service.
        bans: The bans, by the id of the member.
        hand_overs: All hand-overs that were sent.
        numbers: The numbers of the records whose writes were acknowledged.
    """

    pauses: WrittenPauses = field(default_factory=WrittenPauses)
    bans: dict[str, WrittenPauses] = field(default_factory=lambda: defaultdict(WrittenPauses))
    hand_overs: list[HandingOver] = field(default_factory=list[HandingOver])
    numbers: list[int] = field(default_factory=list[int])


class OperatorProgram:
    """One operator. It ends with the faults, and leaves no pause behind."""

    def __init__(  # noqa: PLR0913, PLR0917  made in one place
        self,
        process: SimulatedProcess,
        properties: Configuration,
        service: str,
        group: str,
        candidates: int,
        history: DirectiveHistory,
        now: Callable[[], float],
        noted: Callable[[str], object],
        *,
        bans: bool = False,
    ) -> None:
        """Direct *service* and *group*, for which the programs with that many numbers stand.

        Call *noted* with each directive before and after it is sent, in words. One that *bans*
        members does nothing else.
        """
        self.process = process
        self.has_ended = False
        self._properties = properties
        self._service = service
        self._group = group
        self._candidates = candidates
        self._history = history
        self._now = now
        self._noted = noted
        self._chance = random.Random(process.name)  # noqa: S311  it repeats itself
        self._bans = bans
        self._is_calm = False
        self._locator = PluginLocator()

    def start(self, within: Simulation) -> None:
        """Start its thread."""
        within.spawn(self.process, "main", self._main)

    def be_calm(self) -> None:
        """Write no further directive but one that ends the pause."""
        self._is_calm = True

    def vanish(self) -> None:
        """Leave nothing to a finalizer; see `ClientProgram.vanish`."""
        finalizer = vars(self._locator)["_drop"]
        if finalizer is not None:
            finalizer.detach()

    def _main(self) -> None:
        self._insist(lambda: self._locator.startup(self._properties))
        actions = (
            (self._ban, self._admit)
            if self._bans
            else (
                self._pause,
                self._pause_for_a_while,
                self._resume,
                self._step_down,
                self._hand_over,
            )
        )
        while not self._is_calm:
            simulation().park(self._chance.expovariate(1 / _SECONDS_BETWEEN))
            try:
                self._chance.choice(actions)()
            except Kip30Error as error:
                self._noted(str(error))
        if self._bans:
            for number in range(self._candidates):
                self._insist(partial(self._admit, number))
        else:
            self._end_pauses()
        self.has_ended = True
        self._locator.close()

    def _end_pauses(self) -> None:
        self._insist(self._resume)
        if self._chance.random() < _LEFT_BEHIND:
            with suppress(Kip30Error):
                self._leave_behind()

    def _pause(self, seconds: float | None = None) -> None:
        pauses = self._history.pauses
        with pauses.change(self._now):  # a former one may be replaced by a shorter one
            written = Pausing(until=math.inf if seconds is None else self._now() + seconds)
            self._noted("pauses" if seconds is None else f"pauses for {seconds:.3f} s")
            pauses.written.append(written)
            done = pause_service(self._locator, self._service, seconds=seconds)
            self._history.numbers.append(done.directives.number)
            pauses.acknowledged(written, self._now())
            self._noted(f"has paused: record {done.directives.number}")
        if seconds is None:
            simulation().park(self._chance.expovariate(1 / _SECONDS_PAUSED))
            self._resume()

    def _pause_for_a_while(self) -> None:
        self._pause(self._chance.uniform(1.0, _MOST_PAUSED_SECONDS))

    def _resume(self) -> None:
        with self._history.pauses.change(self._now):
            self._noted("resumes")
            done = resume_service(self._locator, self._service)
            self._noted(f"has resumed: record {done.directives.number}")

    def _step_down(self) -> None:
        wait_seconds = self._chance.uniform(0.0, _WAIT_SECONDS)
        self._noted("ends the term")
        done = step_down_leader(self._locator, self._service, wait_seconds=wait_seconds)
        self._noted(f"has ended the term: {done.leader} leads")

    def _hand_over(self) -> None:
        """Hand over to a candidate, which may be dead or have resigned."""
        successor = f"c{self._chance.randrange(self._candidates)}"
        wait_seconds = self._chance.uniform(0.0, _WAIT_SECONDS)
        written = HandingOver(successor, self._now())
        self._history.hand_overs.append(written)
        self._noted(f"hands over to {successor}")
        try:
            step_down_leader(
                self._locator, self._service, successor=successor, wait_seconds=wait_seconds
            )
        except OutcomeUnknownError:
            raise
        except Kip30Error:
            written.until = self._now()
            raise
        written.until = self._now()
        self._noted(f"has handed over to {successor}")

    def _ban(self) -> None:
        member = f"m{self._chance.randrange(self._candidates)}"
        seconds = self._chance.uniform(1.0, _MOST_PAUSED_SECONDS)
        bans = self._history.bans[member]
        with bans.change(self._now):
            written = Pausing(until=self._now() + seconds)
            self._noted(f"bans {member} for {seconds:.3f} s")
            bans.written.append(written)
            evict(self._locator, self._group, member, ban_seconds=seconds)
            bans.acknowledged(written, self._now())
            self._noted(f"has banned {member}")

    def _admit(self, number: int | None = None) -> None:
        member = f"m{self._chance.randrange(self._candidates) if number is None else number}"
        with self._history.bans[member].change(self._now):
            admit(self._locator, self._group, member)
            self._noted(f"has admitted {member}")

    def _leave_behind(self) -> None:
        """Hand over to a candidate that does not exist, as an operator whose clock is wrong."""
        storage, key = self._locator.storage(BYTES), str(directives_key(self._service))
        found = storage.get(key)
        present = Directives() if found is None else decode_directives(self._service, found.value)
        now = time.time()
        seconds, until = _DAY_SECONDS, now + _DAY_SECONDS
        step_down = StepDown(
            new_nonce(), "", now, "", seconds, until, 0, "", "", "nobody", HOLD_SECONDS
        )
        data = encode_directives(present._replace(step_down=step_down).logged(now, "", "hand-over"))
        if found is None:
            storage.put(key, data)
        else:
            storage.compare_and_set(key, found.version, data)

    def _insist(self, call: Callable[[], object]) -> None:
        while True:
            try:
                call()
            except Kip30Error:
                simulation().park(_RETRY_SECONDS)
            else:
                return
