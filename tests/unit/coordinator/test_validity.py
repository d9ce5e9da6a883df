"""Until when a member may work on its share."""

import math
from dataclasses import replace

import pytest

from kip30.coordinator.decisions.validity import (
    NEVER,
    OwnGeneration,
    confirms,
    is_newest,
    seen,
    share_deadline,
)
from kip30.coordinator.records import StateRecord
from kip30.driver.records import Version

from .made import assignment, state

STABLE = state(4)
PREPARING = state(4, preparing=True)
OWN = OwnGeneration(
    number=4,
    attempt=STABLE.attempt,
    protocol="p",
    assignment=assignment("a"),
    state_version=Version(10),
)


def deadline(own: OwnGeneration | None, lease: float = math.inf) -> float:
    return share_deadline(
        own, lease_deadline=lease, rebalance_timeout_seconds=60.0, margin_seconds=1.0
    )


@pytest.mark.case("K65")
def test_it_is_counted_from_when_the_reading_was_sent() -> None:
    own = seen(OWN, STABLE, Version(10), sent_at=100.0)
    assert deadline(own) == 159.0
    assert deadline(own, lease=130.0) == 130.0
    assert deadline(seen(own, STABLE, Version(10), sent_at=107.0)) == 166.0


@pytest.mark.case("K65")
def test_a_reading_that_was_sent_earlier_does_not_shorten_it() -> None:
    own = seen(OWN, STABLE, Version(10), sent_at=100.0)
    assert deadline(seen(own, STABLE, Version(10), sent_at=90.0)) == 159.0


@pytest.mark.case("K65")
@pytest.mark.parametrize(
    "found",
    [
        PREPARING,
        state(5),
        state(3),
        state(4, attempt="4.7.99999999"),
    ],
)
def test_a_state_not_stable_at_this_generation_extends_no_deadline(found: StateRecord) -> None:
    own = seen(OWN, STABLE, Version(10), sent_at=100.0)
    assert not confirms(own, found)
    assert deadline(seen(own, found, Version(12), sent_at=140.0)) == 159.0


@pytest.mark.case("K65")
def test_a_share_taken_up_while_preparing_is_invalid_until_confirmed() -> None:
    own = seen(OWN, PREPARING, Version(11), sent_at=100.0)
    assert deadline(own) == NEVER
    assert deadline(seen(own, STABLE, Version(12), sent_at=None)) == NEVER
    assert deadline(seen(own, STABLE, Version(12), sent_at=120.0)) == 179.0


@pytest.mark.case("K65")
def test_nothing_is_valid_that_is_not_held() -> None:
    own = seen(OWN, STABLE, Version(10), sent_at=100.0)
    assert deadline(None) == NEVER
    assert deadline(replace(own, is_given_up=True)) == NEVER


def test_the_version_for_guards_follows_the_state_while_the_share_stays() -> None:
    assert seen(OWN, PREPARING, Version(11), sent_at=None).state_version == Version(11)
    assert seen(OWN, state(5), Version(12), sent_at=1.0).state_version == Version(10)
    assert is_newest(OWN, PREPARING)
    assert not is_newest(OWN, state(4, attempt="4.7.99999999"))
