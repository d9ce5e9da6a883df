"""Promises about directives: pauses and bans hold, no write is lost, the highest priority leads."""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from typing_extensions import override

from kip30.driver.records import Entry, Kind
from kip30.runtime.candidacy import Leadership
from kip30.runtime.candidate_line import decode_place, preferred_group
from kip30.runtime.directives import NAMESPACE, decode_directives
from kip30.runtime.member import Member
from kip30.runtime.priority_rules import PRIORITY_TURN_SECONDS
from kip30_conformance.simulation.dialects import DIALECTS
from kip30_conformance.simulation.model_store import Table
from kip30_conformance.simulation.programs import GROUP, SERVICE, ClientProgram, Event
from kip30_conformance.simulation.promises import Promise, World

_PREFERRED = preferred_group(SERVICE)
_CALM_SECONDS = 12.0
"""Seconds after the last fault in which requests of before may still arrive, or be repeated."""
_KNOWN_SECONDS = 0.5
"""Seconds in which a candidate begins to watch the service once it waits."""
_LONGEST_TURNS_SECONDS = 3 * PRIORITY_TURN_SECONDS
"""Seconds that a client leaves to all better candidates together, at most."""


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


class HighestPriorityLeads(Promise):
    """X08: when it has been calm for a while, no candidate leads before a better one that waits.

    The better one was in the group of preferred candidates for a while when the service became
    vacant, and still is when the program of the other one learns of its term. A store whose clients
    poll more slowly than a turn lasts is not judged: the model has a line there, the real one none,
    for which turns are longer. Nor is a vacancy within a session timeout of a leader with a
    priority that others did not know to wait: it had no turn, so those that they left to others in
    its vacancy still count.
    """

    id = "X08"

    def __init__(self, world: World) -> None:
        """Judge *world*."""
        super().__init__(world)
        polls = DIALECTS[world.plan.dialect].poll_seconds
        self._is_judged = polls < PRIORITY_TURN_SECONDS
        self._priorities = {f"c{number}": one for number, one in enumerate(world.plan.priorities)}
        # Until when clients may pass over candidates that had a turn in an earlier vacancy.
        self._turns_count_until = 0.0
        # When each member of the group joined it, by its nonce.
        self._joined_at: dict[str, float] = {}
        # The members that were there for a while when each claim was granted, by its nonce.
        self._waited: dict[str, Mapping[str, Entry]] = {}

    @override
    def granted(self, table: Table, name: str, entry: Entry) -> None:
        if (table.kind, table.scope) == (Kind.GROUP, _PREFERRED):
            self._joined_at[entry.nonce] = self.world.now
        if (table.kind, table.scope) == (Kind.SERVICE, SERVICE):
            vacant_since = self.world.changed_at.get(table, 0.0)
            waited = {
                member: one
                for member, one in self.world.rows(Kind.GROUP, _PREFERRED).items()
                if self._joined_at[one.nonce] + _KNOWN_SECONDS <= vacant_since
            }
            self._waited[entry.nonce] = {} if self.world.now < self._turns_count_until else waited
            if self._priorities.get(name) and name not in set(_candidates(waited.values())):
                turns = self.world.plan.session_seconds + _LONGEST_TURNS_SECONDS
                self._turns_count_until = self.world.now + turns

    @override
    def heard(self, program: ClientProgram, event: Event) -> None:
        term = event.subject
        if event.what != "elected" or not isinstance(term, Leadership):
            return
        is_calm = self.world.now >= self.world.plan.fault_seconds + _CALM_SECONDS
        if not (self._is_judged and is_calm) or self._is_directed():
            return
        waited = self._waited.get(term.claim.entry.nonce, {})
        rows = self.world.rows(Kind.GROUP, _PREFERRED)
        for member, entry in waited.items():
            place = decode_place(entry.data)
            is_better = place is not None and place.priority > program.priority
            if is_better and rows.get(member) == entry:
                self.broken(f"{program.process.name} was elected while {place} waited")

    def _is_directed(self) -> bool:
        """Return whether a step-down may hold the service, for each candidate by its own clock."""
        records = self.world.rows(Kind.NAMESPACE, NAMESPACE).values()
        found = (decode_directives(SERVICE, entry.data).step_down for entry in records)
        return any(one is not None and one.fulfilled is None for one in found)


def _candidates(entries: Iterable[Entry]) -> Iterator[str]:
    places = (decode_place(entry.data) for entry in entries)
    return (place.candidate for place in places if place is not None)


DIRECTIVE_PROMISES: Iterable[type[Promise]] = (
    PausesHold,
    BansHold,
    DirectivesAreKept,
    HighestPriorityLeads,
)
