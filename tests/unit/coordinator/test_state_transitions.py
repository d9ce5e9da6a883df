"""Two phases, five transitions."""

from dataclasses import replace

import pytest

from kip30.coordinator.records import GroupPhase, StateRecord
from kip30.coordinator.state_transitions import (
    begun,
    check_transition,
    committed,
    first,
    taken_over,
)
from kip30.errors import GroupError

from .made import assignment, state

EMPTY = first(epoch=1, leader="a", history="h")
STABLE = state(4, inline={"a": assignment("a")})
PREPARING = replace(STABLE, phase=GroupPhase.PREPARING)
NEXT = replace(state(5), inline={"b": assignment("b")})

ALLOWED: list[tuple[StateRecord | None, StateRecord]] = [
    (None, EMPTY),
    (STABLE, begun(STABLE)),
    (PREPARING, committed(PREPARING, NEXT)),
    (PREPARING, taken_over(PREPARING, epoch=2, leader="b")),
    (STABLE, taken_over(STABLE, epoch=2, leader="b")),
    (EMPTY, committed(EMPTY, replace(NEXT, generation=1, history="h"))),
    (EMPTY, taken_over(EMPTY, epoch=7, leader="a")),
]
REFUSED: list[tuple[StateRecord | None, StateRecord]] = [
    (None, STABLE),
    (None, PREPARING),
    (STABLE, NEXT),
    (STABLE, STABLE),
    (PREPARING, PREPARING),
    (PREPARING, STABLE),
    (PREPARING, replace(NEXT, generation=6)),
    (PREPARING, replace(NEXT, attempt=PREPARING.attempt)),
    (PREPARING, replace(NEXT, attempt="")),
    (PREPARING, replace(NEXT, leader="b")),
    (PREPARING, replace(NEXT, history="h")),
    (PREPARING, replace(NEXT, epoch=2)),
    (STABLE, replace(PREPARING, generation=5)),
    (STABLE, replace(PREPARING, leader="b")),
    (STABLE, replace(PREPARING, epoch=2, leader="b")),
    (STABLE, replace(PREPARING, inline={})),
    (STABLE, replace(PREPARING, attempt="4.1.99999999")),
    (STABLE, replace(STABLE, epoch=0, leader="b")),
    (STABLE, replace(STABLE, epoch=2, leader="b", protocol="q")),
]


@pytest.mark.case("K08")
@pytest.mark.parametrize(("old", "new"), ALLOWED)
def test_the_five_transitions_are_made(old: StateRecord | None, new: StateRecord) -> None:
    check_transition(old, new)


@pytest.mark.case("K08")
@pytest.mark.parametrize(("old", "new"), REFUSED)
def test_every_other_one_is_refused(old: StateRecord | None, new: StateRecord) -> None:
    with pytest.raises(GroupError, match="cannot become"):
        check_transition(old, new)


@pytest.mark.case("K08")
def test_only_a_commit_changes_the_generation() -> None:
    assert begun(STABLE).generation == STABLE.generation
    assert taken_over(STABLE, epoch=2, leader="b").generation == STABLE.generation
    with pytest.raises(GroupError):
        begun(PREPARING)
    with pytest.raises(GroupError):
        taken_over(STABLE, epoch=1, leader="b")


def test_the_round_has_the_number_of_the_generation_it_forms() -> None:
    assert (STABLE.round, PREPARING.round, EMPTY.round) == (4, 5, 1)
