"""The members of a generation, and its protocol."""

from typing import Any

import pytest

from kip30.coordinator.interface import JoinGroupMetadata
from kip30.coordinator.voting import Vote, check_cooperation, check_offer, vote
from kip30.errors import UsageError

from .assignors.cases import Case, of_kind
from .made import member


def voted(*members: Any, last: str = "", leader_id: str = "a", max_size: int | None = None) -> Vote:
    return vote(members, last=frozenset(last), leader_id=leader_id, max_size=max_size)


def names(result: Vote) -> tuple[list[str], list[str]]:
    accepted = [one.member_id for one in result.accepted]
    return accepted, [one.member_id for one, _ in result.refused]


@pytest.mark.case("K12")
@pytest.mark.parametrize(
    ("offers", "chosen"),
    [
        # Each votes for the first that all share, not for its own first.
        ((["x", "y"], ["z", "y"], ["y", "x", "z"]), "y"),
        ((["q", "y", "x"], ["r", "y", "x"], ["x", "y"]), "y"),
        # The most votes win over the leader's preference.
        ((["x", "y"], ["y", "x"], ["y", "x"]), "y"),
        ((["x", "y", "z"], ["z", "y"], ["z", "y"]), "z"),
        ((["x"],), "x"),
    ],
)
def test_the_protocol_with_most_votes_of_those_that_all_share(
    offers: tuple[list[str], ...], chosen: str
) -> None:
    members = [member("abc"[n], n + 1, protocols=offer) for n, offer in enumerate(offers)]
    result = voted(*members)
    assert (result.protocol, names(result)[1]) == (chosen, [])


@pytest.mark.case("K12")
@pytest.mark.parametrize("case", of_kind("protocol"))
def test_published_cases(case: Case) -> None:
    offers = case["members"].items()
    members = [member(name, n + 1, protocols=offer) for n, (name, offer) in enumerate(offers)]
    assert voted(*members).protocol == case["expect"]["protocol"]


@pytest.mark.case("K13")
@pytest.mark.parametrize(("leader_id", "chosen"), [("a", "x"), ("b", "y"), ("elsewhere", "x")])
def test_a_tie_goes_to_the_leader_s_preference(leader_id: str, chosen: str) -> None:
    members = member("a", 1, protocols=["x", "y"]), member("b", 2, protocols=["y", "x"])
    assert voted(*members, leader_id=leader_id).protocol == chosen
    assert voted(*reversed(members), leader_id=leader_id).protocol == chosen


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        ({"protocols": ["q"]}, "none of the protocols of the group: p"),
        ({"protocol_type": "other"}, "'other', the group's is 'test'"),
    ],
)
def test_a_newcomer_with_another_protocol_or_type_is_refused(
    offered: dict[str, Any], why: str
) -> None:
    result = voted(member("a", 1), member("b", 2), member("c", 3, **offered))
    assert names(result) == (["a", "b"], ["c"])
    assert why in result.refused[0][1]


def test_members_at_work_come_before_newcomers_whatever_their_incarnation() -> None:
    returned = member("i", 9, instance="k", protocols=["p"])
    newcomer = member("n", 1, protocols=["q"])
    assert names(voted(returned, newcomer, last="k")) == (["i"], ["n"])
    assert names(voted(returned, newcomer)) == (["n"], ["i"])


def test_a_member_above_the_greatest_size_is_refused() -> None:
    members = [member(name, n) for n, name in enumerate("abcd")]
    assert names(voted(*members, max_size=3)) == (["a", "b", "c"], ["d"])
    assert names(voted(*members, max_size=3, last="bcd")) == (["b", "c", "d"], ["a"])
    assert "3 members already" in voted(*members, max_size=3).refused[0][1]


def test_a_member_without_protocols_is_no_member() -> None:
    assert names(voted(member("a", 1, protocols=[]), member("b", 2))) == (["b"], ["a"])
    assert voted() == Vote("", "", (), ())


@pytest.mark.case("K14")
@pytest.mark.parametrize(
    ("kind", "offered", "why"),
    [
        ("", [("p", b"")], "protocol type"),
        (None, [("p", b"")], "protocol type"),
        ("test", [], "no protocol"),
        ("test", [("", b"")], "protocol is empty"),
        ("test", [("p", b""), ("p", b"2")], "'p' twice"),
        ("test", [("p\ud800", b"")], "surrogate"),
    ],
)
def test_an_empty_type_or_list_is_refused(kind: Any, offered: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_offer(kind, [JoinGroupMetadata(*one) for one in offered])


def test_offered_protocols_keep_their_order() -> None:
    offered = [JoinGroupMetadata("q", b"1"), JoinGroupMetadata("p", b"2")]
    assert check_offer("test", offered) == (("q", b"1"), ("p", b"2"))


@pytest.mark.case("K49")
def test_eager_and_cooperative_protocols_do_not_mix() -> None:
    assert check_cooperation({"sticky": True, "other": True})
    assert not check_cooperation({"range": False, "other": False})
    assert not check_cooperation({})
    with pytest.raises(UsageError, match="'sticky' is cooperative and 'range' is not"):
        check_cooperation({"range": False, "sticky": True})
