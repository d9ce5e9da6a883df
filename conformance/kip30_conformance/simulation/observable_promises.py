"""The promises that can be judged without a model, by the beliefs of processes and a reader."""

from collections.abc import Iterable
from typing import Final

from typing_extensions import override

from kip30.driver.records import Kind, check_fence
from kip30.runtime.candidacy import Leadership
from kip30_conformance.simulation.liveness_promises import (
    CALM_SECONDS,
    AllAreElected,
    ListenersAreRight,
    MembersReturn,
    NothingIsLeft,
)
from kip30_conformance.simulation.programs import SERVICE, ClientProgram, Event
from kip30_conformance.simulation.promises import Promise, World
from kip30_conformance.simulation.safety_promises import CallsHaveAnOrder, NothingComesBack


class OneBeliever(Promise):
    """D02: no two processes have a valid leadership at the same moment."""

    id = "D02"

    @override
    def heard(self, program: ClientProgram, event: Event) -> None:
        self.watched()

    @override
    def watched(self) -> None:
        believers = [
            f"{program.process.name} in epoch {term.epoch}"
            for program in self.world.programs
            if (term := program.term()) is not None and check_fence(term) not in self.world.excused
        ]
        if len(believers) > 1:
            self.broken(f"{' and '.join(believers)} believe to lead at the same moment")


class EpochsDiffer(Promise):
    """D03: each term has an epoch and a nonce of its own; epochs rise in each process and store."""

    id = "D03"

    def __init__(self, world: World) -> None:
        """Judge *world*."""
        super().__init__(world)
        self._nonces: dict[int, str] = {}
        self._last: dict[str, int] = {}
        self._read = 0

    @override
    def heard(self, program: ClientProgram, event: Event) -> None:
        term, name = event.subject, program.process.name
        if event.what != "elected" or not isinstance(term, Leadership):
            return
        if term.epoch in self._nonces:
            self.broken(f"{name} was elected in epoch {term.epoch}, as another term before")
        if term.claim.entry.nonce in self._nonces.values():
            self.broken(f"{name} was elected with the nonce of an earlier term")
        if term.epoch <= self._last.get(name, 0):
            self.broken(f"{name} was elected in epoch {term.epoch} after {self._last[name]}")
        self._nonces[term.epoch] = term.claim.entry.nonce
        self._last[name] = term.epoch

    @override
    def watched(self) -> None:
        for entry in self.world.rows(Kind.SERVICE, SERVICE).values():
            if entry.version.major < self._read:
                self.broken(f"the store has epoch {entry.version.major} after {self._read}")
            self._read = entry.version.major


class ListenersFollow(ListenersAreRight):
    """D07: when it has been calm for a while listeners have what the reader has read.

    A record may come and go between two reads: its listeners are notified of both, and the reader
    sees no change. So the time is counted from the first look at a difference, and begins again
    with each change of either side.
    """

    def __init__(self, world: World) -> None:
        """Judge *world*."""
        super().__init__(world)
        # Of each difference, in words, the virtual time at which it was first seen.
        self._since: dict[str, float] = {}
        self._present: dict[str, float] = {}

    @override
    def watched(self) -> None:
        self._present = {}
        super().watched()
        self._since = self._present

    @override
    def broken(self, text: str) -> None:
        since = self._present[text] = self._since.get(text, self.world.now)
        if self.world.now >= since + CALM_SECONDS:
            super().broken(text)

    @override
    def settled(self) -> None:
        """Judge only that all were notified: a difference that lasts was seen before the end."""
        self._expect_events()

    @override
    def _has_just_changed(self, scope: str) -> bool:
        return False


OBSERVABLE_PROMISES: Final[Iterable[type[Promise]]] = (
    OneBeliever,
    EpochsDiffer,
    NothingComesBack,
    AllAreElected,
    MembersReturn,
    ListenersFollow,
    NothingIsLeft,
    CallsHaveAnOrder,
)
"""D02 to D09. Only a model knows when it ends a session, so D01 is not among them."""
