"""Promises about liveness: the state in the end, or whenever it has been calm for a while."""

from collections.abc import Iterable

from typing_extensions import override

from kip30.driver.records import Kind
from kip30_conformance.simulation.item_program import ITEMS
from kip30_conformance.simulation.lock_program import LOCK_SERVICE
from kip30_conformance.simulation.programs import GROUP, SERVICE, ClientProgram
from kip30_conformance.simulation.promises import Promise

CALM_SECONDS = 6.0
"""Seconds after a fault, and after a change, in which listeners may show another state."""


class AllAreElected(Promise):
    """D05: when the network has healed every candidate is elected, and every item has an owner."""

    id = "D05"

    @override
    def settled(self) -> None:
        for program in self.world.programs:
            if not program.has_led:
                self.broken(f"{program.candidate} was not elected again")
            if not all(lock.has_held for lock in program.locks):
                self.broken(f"{program.process.name} did not acquire the lock again")
        if self.world.plan.has_items:
            self._judge_items()

    def _judge_items(self) -> None:
        owned = [item for program in self.world.programs for item in program.owned().items]
        if sorted(owned) != list(ITEMS):
            self.broken(f"items {[item.partition for item in owned]} are owned in the end")
        for program in self.world.programs:
            if program.items is None or not program.items.is_stable:
                failure = "" if program.items is None else f": {program.items.failure}"
                self.broken(f"{program.process.name} has no share in the end{failure}")


class MembersReturn(Promise):
    """D06: every member is back, with data not older than its last confirmed update."""

    id = "D06"

    @override
    def settled(self) -> None:
        members = self.world.rows(Kind.GROUP, GROUP)
        for program in self.world.programs:
            entry = members.get(program.member_id)
            if entry is None:
                evicted = " (it was evicted)" if program.is_evicted else ""
                self.broken(f"{program.member_id} has not returned{evicted}")
            elif int(entry.data) < program.confirmed:
                shown = entry.data.decode()
                self.broken(f"{program.member_id} shows {shown} after {program.confirmed}")


class ListenersAreRight(Promise):
    """D07: when it has been calm for a while listeners have what the store has."""

    id = "D07"

    @override
    def watched(self) -> None:
        world = self.world
        if world.now < world.calm_since + CALM_SECONDS:
            return
        for program in world.programs:
            if not (program.process.is_dead or program.process.is_paused):
                self._compare(program)

    @override
    def settled(self) -> None:
        self._expect_events()
        for program in self.world.programs:
            self._compare(program)

    def _expect_events(self) -> None:
        """Judge that each listener was called: until then there is nothing to compare."""
        for program in self.world.programs:
            for scope, seen in ((SERVICE, program.leader), (GROUP, program.members)):
                if seen is ...:
                    name = program.process.name
                    self.world.fail(self.id, f"{name} was never notified of {scope!r}")

    def _compare(self, program: ClientProgram) -> None:
        leader, members = self._leader(), self._members()
        for scope, seen, truth in (
            (SERVICE, program.leader, leader),
            (GROUP, program.members, members),
        ):
            if seen in (..., truth) or self._has_just_changed(scope):
                continue
            self.broken(f"{program.process.name} was notified of {seen}, and the store has {truth}")

    def _has_just_changed(self, scope: str) -> bool:
        changed = [at for table, at in self.world.changed_at.items() if table.scope == scope]
        return bool(changed) and self.world.now < max(changed) + CALM_SECONDS

    def _leader(self) -> object:
        leaders = self.world.rows(Kind.SERVICE, SERVICE)
        return next(((name, entry.version.major) for name, entry in leaders.items()), None)

    def _members(self) -> object:
        rows = self.world.rows(Kind.GROUP, GROUP)
        return {name: entry.data.decode() for name, entry in rows.items()}


class NothingIsLeft(Promise):
    """D08: after all have resigned and released, no living session holds or awaits a term."""

    id = "D08"

    @override
    def settled(self) -> None:
        for kind, scope in (
            (Kind.SERVICE, SERVICE),
            (Kind.SERVICE, LOCK_SERVICE),
            (Kind.GROUP, LOCK_SERVICE),
        ):
            rows = self.world.rows(kind, scope)
            if rows:
                self.broken(f"{', '.join(rows)} is still in {kind.name.lower()} {scope!r}")


LIVENESS_PROMISES: Iterable[type[Promise]] = (
    AllAreElected,
    MembersReturn,
    ListenersAreRight,
    NothingIsLeft,
)
