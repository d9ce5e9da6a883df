"""Promises about directives: pauses and bans hold, and no write of an operator is lost."""

from collections.abc import Iterable
from typing import ClassVar

from typing_extensions import override

from kip30.driver.records import Entry, Kind
from kip30.runtime.candidacy import Leadership
from kip30.runtime.member import Member
from kip30_conformance.simulation.model_store import Table
from kip30_conformance.simulation.programs import GROUP, SERVICE, ClientProgram, Event
from kip30_conformance.simulation.promises import Promise, World


class _GrantTimes(Promise):
    """A promise that depends on when the store granted claims of one kind in one scope."""

    id = "X08"
    kind: ClassVar[Kind]
    scope: ClassVar[str]

    def __init__(self, world: World) -> None:
        """Judge *world*."""
        super().__init__(world)
        # By the nonce of the claim.
        self.granted_at: dict[str, float] = {}

    @override
    def granted(self, table: Table, name: str, entry: Entry) -> None:
        if (table.kind, table.scope) == (self.kind, self.scope):
            # A request that is repeated is granted again: the look follows the last answer.
            self.granted_at[entry.nonce] = self.world.now


class PausesHold(_GrantTimes):
    """X08: no program learns of a term that was granted under a pause, unless it is named.

    The pause was acknowledged before the grant, and lasts until the program is notified.
    """

    kind, scope = Kind.SERVICE, SERVICE

    @override
    def heard(self, program: ClientProgram, event: Event) -> None:
        term = event.subject
        if event.what != "elected" or not isinstance(term, Leadership):
            return
        granted_at = self.granted_at.get(term.claim.entry.nonce)
        if granted_at is None or self._is_named(program.candidate, granted_at):
            return
        for pause in self.world.directives.pauses.written:
            # What is heard is called a moment after the look; a pause may end in between.
            if pause.since <= granted_at and self.world.now < pause.until:
                since = granted_at - pause.since
                self.broken(
                    f"{program.process.name} was elected in epoch {term.epoch}, which was granted"
                    f" {since:.3f} s after the service was paused"
                )

    def _is_named(self, candidate: str, granted_at: float) -> bool:
        return any(
            one.successor == candidate and granted_at <= one.until
            for one in self.world.directives.hand_overs
        )


class BansHold(_GrantTimes):
    """X08: no program learns of a re-join that was granted while its member was banned.

    The ban was acknowledged before the grant, and lasts until the program is notified.
    """

    kind, scope = Kind.GROUP, GROUP

    @override
    def heard(self, program: ClientProgram, event: Event) -> None:
        member = event.subject
        if event.what != "rejoined" or not isinstance(member, Member):
            return
        granted_at = self.granted_at.get(member.claim.entry.nonce)
        if granted_at is None:
            return
        for ban in self.world.directives.bans[member.id].written:
            if ban.since <= granted_at and self.world.now < ban.until:
                self.broken(
                    f"{member.id} has re-joined by a claim that was granted"
                    f" {granted_at - ban.since:.3f} s after it was banned"
                )


class DirectivesAreKept(Promise):
    """X08: no two directives that were acknowledged were the same write of the record."""

    id = "X08"

    @override
    def settled(self) -> None:
        numbers = self.world.directives.numbers
        if len(set(numbers)) < len(numbers):
            self.broken(f"records with the numbers {sorted(numbers)} were acknowledged")


DIRECTIVE_PROMISES: Iterable[type[Promise]] = (PausesHold, BansHold, DirectivesAreKept)
