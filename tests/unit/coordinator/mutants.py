"""Eight mistakes in the shipped decisions, each of which a model finds (X07)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import pytest

from kip30.coordinator import decisions, keys
from kip30.coordinator.decisions import leader, leader_facts, member, validity
from kip30.coordinator.decisions.leader_facts import LeaderFacts
from kip30.coordinator.decisions.steps import LeaderStep, PutParts, WriteState
from kip30.coordinator.records import StateRecord
from kip30.driver.records import Condition, Version

Patch = pytest.MonkeyPatch


def no_cas(patch: Patch) -> None:
    """Write the state, regardless of its version."""
    patch.setattr(leader, "_write", lambda record, _: WriteState(record, Condition.ANY))


def round_as_attempt(patch: Patch) -> None:
    """Name a publication after its round alone."""
    patch.setattr(leader_facts, "attempt_name", lambda number, *_: f"{number}.0.00000000")


def commit_before_parts(patch: Patch) -> None:
    """Name the parts in the state, and store them afterwards."""
    waiting: dict[str, Mapping[int, bytes]] = {}
    between_rounds = leader._between_rounds

    def publish(facts: LeaderFacts, state: StateRecord, version: Version) -> LeaderStep:
        formation = facts.formation
        assert formation is not None
        waiting[formation.attempt] = formation.packed.parts
        return WriteState(formation.committed(state), version)

    def store_first(facts: LeaderFacts, state: StateRecord, version: Version) -> LeaderStep:
        parts = waiting.pop(state.attempt, {})
        return PutParts(state.attempt, parts) if parts else between_rounds(facts, state, version)

    patch.setattr(leader, "_publish", publish)
    patch.setattr(leader, "_between_rounds", store_first)


def no_guard(patch: Patch) -> None:
    """Guard writes by nothing."""
    patch.setattr(decisions, "guards", lambda *_: {})


def guard_without_instance(patch: Patch) -> None:
    """Guard the writes of a static member by the state alone."""
    sound = decisions.guards
    patch.setattr(
        decisions, "guards", lambda own, names, instance, _: sound(own, names, instance, None)
    )


def cleaning_the_newest(patch: Patch) -> None:
    """Delete the parts that the state names."""
    sound = keys.is_outdated
    patch.setattr(keys, "is_outdated", lambda name, generation: sound(name, generation + 2))


def deadline_extended_by_preparing(patch: Patch) -> None:
    """Treat a reading that sees a round under way as a confirmation."""
    patch.setattr(validity, "confirms", validity.is_newest)


def older_generation_taken_up(patch: Patch) -> None:
    """Take up a generation that is below the round that the member has joined."""
    patch.setattr(member, "is_at_least_joined", lambda *_: True)


class Conviction(NamedTuple):
    """The schedules that find a mistake.

    Attributes:
        seeds: The schedules; each of them fails.
        error: The error of the model for them.
        is_timed: True if they are those of the timed model.
    """

    seeds: tuple[int, ...]
    error: str
    is_timed: bool = False


_OVERLAP = "two members work on one item"
_NO_REST = "the group does not come to rest"

MUTANTS: dict[Callable[[Patch], None], Conviction] = {
    no_cas: Conviction((9, 11), "two publications of one generation were taken up"),
    round_as_attempt: Conviction((5, 6), _NO_REST),
    commit_before_parts: Conviction((5, 10), _NO_REST),
    no_guard: Conviction((0, 1), "two members pass the guards for one item"),
    guard_without_instance: Conviction((1, 16), "two members pass the guards for one item"),
    cleaning_the_newest: Conviction((5, 7), "the newest parts are gone"),
    deadline_extended_by_preparing: Conviction((4, 10), _OVERLAP, is_timed=True),
    older_generation_taken_up: Conviction((41, 60), _OVERLAP, is_timed=True),
}
