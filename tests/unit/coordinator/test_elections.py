"""The election of a `LeaderCoordinator`, as a function of what all members say."""

from collections.abc import Mapping
from typing import Any

import pytest

from kip30.coordinator.leader_coordinator import Election, elect

from .assignors.cases import Case, of_kind


def said(url: str, *, eligible: bool = True, elected_in: int | None = None) -> Mapping[str, Any]:
    claim = {"elected": elected_in is not None, "generation": elected_in or -1}
    return {"url": url, "eligible": eligible, **claim}


def said_in_case(member: Case) -> Mapping[str, Any]:
    elected_in = 1 if member["is_leader"] else None
    return said(member["url"], eligible=member["eligible"], elected_in=elected_in)


@pytest.mark.parametrize("case", of_kind("leader"))
def test_published_cases(case: Case) -> None:
    for step in case["steps"]:
        members = {name: said_in_case(member) for name, member in step["members"].items()}
        result = elect(members, sticky=case["sticky"])
        assert result.elected == step["expect"].get("leader")
        assert bool(result.duplicates) == (step["expect"]["error"] == "duplicate")
        assert not result.is_withheld


@pytest.mark.parametrize("sticky", [True, False])
def test_another_member_is_elected_in_place_of_two_with_the_same_url(*, sticky: bool) -> None:
    members = {"1": said("a"), "2": said("a", eligible=False), "3": said("b")}
    assert elect(members, sticky=sticky) == Election("3", frozenset("12"), is_withheld=False)


def test_an_elected_member_whose_url_another_member_takes_gives_it_up_first() -> None:
    members = {"1": said("a", elected_in=4), "2": said("a"), "3": said("b")}
    assert elect(members, sticky=True) == Election(None, frozenset("12"), is_withheld=True)


def test_two_members_that_claim_to_be_elected_give_it_up_first() -> None:
    members = {"1": said("a", elected_in=4), "2": said("b", elected_in=4), "3": said("c")}
    assert elect(members, sticky=True) == Election(None, frozenset(), is_withheld=True)
    members["1"] = said("a", elected_in=3)
    assert elect(members, sticky=True).elected == "2"


def test_an_absent_member_may_stay_elected_and_gives_nothing_up() -> None:
    members = {"1": said("b", elected_in=4), "2": said("a")}
    assert elect(members, sticky=True, absent={"1"}).elected == "1"
    members["3"] = said("b")
    duplicates = frozenset("13")
    assert elect(members, sticky=True) == Election(None, duplicates, is_withheld=True)
    assert elect(members, sticky=True, absent={"1"}) == Election("2", duplicates, is_withheld=False)
