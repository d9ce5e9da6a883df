"""The guards of a write, and the meaning of a refusal."""

from dataclasses import replace

import pytest

from kip30.coordinator.decisions import OwnGeneration, StateReading, after_refusal, guards
from kip30.coordinator.keys import GroupKeys
from kip30.coordinator.records import Assignment
from kip30.driver.records import Version
from kip30.errors import FencedInstanceError, IllegalGenerationError

from .made import assignment, state

KEYS = GroupKeys("g")
STABLE = state(4)
OWN = OwnGeneration(
    number=4,
    attempt=STABLE.attempt,
    protocol="p",
    assignment=assignment("a", since=3),
    state_version=Version(10),
)


def judged(
    reading: StateReading, found: Assignment | None = None, *, is_static: bool = False
) -> OwnGeneration:
    return after_refusal(OWN, reading, found, member_id="a", is_static=is_static)


@pytest.mark.case("K34")
def test_a_write_is_guarded_by_the_state_and_the_instance() -> None:
    assert guards(OWN, KEYS, "a", None) == {KEYS.state: Version(10)}
    assert guards(OWN, KEYS, "k", Version(7)) == {
        KEYS.state: Version(10),
        KEYS.instance("k"): Version(7),
    }


@pytest.mark.case("K34")
def test_it_passes_again_while_the_next_generation_is_formed() -> None:
    reading = StateReading(state(4, preparing=True, epoch=2), Version(12), 1.0)
    assert judged(reading) == replace(OWN, state_version=Version(12))


@pytest.mark.case("K73")
def test_a_lost_key_of_the_instance_is_no_replacement() -> None:
    with pytest.raises(IllegalGenerationError, match="lost the instance"):
        judged(StateReading(STABLE, Version(12), 1.0, None), is_static=True)


@pytest.mark.case("K69")
def test_it_passes_in_later_generations_while_the_share_is_unchanged() -> None:
    reading = StateReading(state(7), Version(20), 1.0)
    assert judged(reading, assignment("a", since=3)) == replace(OWN, state_version=Version(20))


@pytest.mark.case("K69")
@pytest.mark.parametrize(
    "found",
    [None, assignment("a", since=7), assignment("a", since=3, refusal="the group is full")],
)
def test_it_is_refused_once_the_share_is_another_one(found: Assignment | None) -> None:
    with pytest.raises(IllegalGenerationError, match="generation 4 is over"):
        judged(StateReading(state(7), Version(20), 1.0), found)


@pytest.mark.parametrize(
    "reading",
    [
        StateReading(None, None, 1.0),
        StateReading(state(3), Version(20), 1.0),
        StateReading(state(4, attempt="4.7.99999999"), Version(20), 1.0),
        StateReading(state(7, history="another"), Version(20), 1.0),
    ],
)
def test_a_write_is_refused_when_the_group_history_begins_again(reading: StateReading) -> None:
    with pytest.raises(IllegalGenerationError):
        judged(reading, assignment("a", since=3))


def test_a_replaced_static_member_is_fenced() -> None:
    reading = StateReading(STABLE, Version(10), 1.0, "b")
    with pytest.raises(FencedInstanceError):
        judged(reading, assignment("a", since=3), is_static=True)
    again = judged(reading._replace(holder="a"), is_static=True)
    assert again.state_version == Version(10)
