"""Records that cannot be read or decoded: left out, logged once, and hiding nothing else."""

import logging
import pickle
import traceback
from itertools import pairwise
from typing import Any

import pytest

from kip30 import JSON, CodecError, Leader, PluginLocator, StoreError
from kip30.driver.records import Delta, Entry, Kind, Snapshot, Target, Version
from kip30.listeners import ValueChange, _ValueChanges
from kip30.names import Key
from kip30.runtime.group_views import Changes, GroupViews
from kip30.runtime.leader_views import LeaderViews
from kip30.runtime.unreadable import UnreadableLog
from kip30_conformance.polling import eventually

from .conftest import OpenClient

pytestmark = pytest.mark.virtual_time

NAMESPACE, VALUE = Target(Kind.NAMESPACE, "ns"), Target(Kind.VALUE, "ns", "a")
GROUP, MEMBER = Target(Kind.GROUP, "g"), Target(Kind.MEMBER, "g", "a")
DAMAGED = {"a": "damaged"}


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING)
    return caplog


def state(order: int, unreadable: dict[str, str] | None = None, **data: bytes) -> Snapshot:
    entries = {name: Entry(Version(1), repr(each), each) for name, each in data.items()}
    return Snapshot(order, entries, unreadable or {})


def test_each_record_is_logged_once_for_each_reason(warnings: pytest.LogCaptureFixture) -> None:
    log = UnreadableLog()
    for unreadable in ({}, DAMAGED, DAMAGED, {"a": "from the future"}, DAMAGED | {"b": "damaged"}):
        log.note(NAMESPACE, unreadable)
    logged = [record.getMessage().split("'")[1] for record in warnings.records]
    assert logged == ["a", "a", "a", "b"]


def test_a_record_is_logged_once_whichever_way_it_is_met(
    warnings: pytest.LogCaptureFixture,
) -> None:
    log = UnreadableLog()
    for target in (NAMESPACE, VALUE, GROUP, MEMBER):
        log.note(target, DAMAGED)
    assert [record.getMessage().split(" is ")[0] for record in warnings.records] == [
        "'a' in namespace 'ns'",
        "'a' in group 'g'",
    ]


@pytest.mark.parametrize("more", [0, 1, 900])
def test_a_tree_of_another_program_fills_no_log(
    warnings: pytest.LogCaptureFixture, more: int
) -> None:
    log = UnreadableLog()
    for number in range(100 + more):
        log.note(NAMESPACE, {str(each): "foreign" for each in range(number + 1)})
    assert len(warnings.records) == 101
    assert "further ones are not logged" in warnings.records[-1].getMessage()


def test_the_log_forgets_the_least_recently_used_places(warnings: pytest.LogCaptureFixture) -> None:
    log = UnreadableLog()
    for number in range(5000):
        log.note(Target(Kind.GROUP, str(number)), DAMAGED)
        log.note(GROUP, DAMAGED)
    assert len(log._logged) == 4096
    assert len(warnings.records) == 5001


def test_a_leader_whose_data_cannot_be_decoded_leads(warnings: pytest.LogCaptureFixture) -> None:
    views = LeaderViews("s", JSON)
    leader, again = views.leader(state(1, c=b"?")), views.leader(state(2, c=b"?"))
    assert leader is not None
    assert (leader.id, leader.epoch) == ("c", 1)
    assert (leader, hash(leader)) == (again, hash(again))
    assert repr(leader) == "Leader(id='c', data=undecodable, epoch=1)"
    assert len(warnings.records) == 1
    change = views.change(state(1), state(2, c=b"?"), None)
    assert change is not None
    assert change.leader == leader


def test_asking_for_undecodable_data_again_costs_no_more() -> None:
    leader = LeaderViews("s", JSON).leader(state(1, c=b"?"))
    assert leader is not None
    depths = [len(traceback.extract_tb(_error(leader).__traceback__)) for _ in range(5)]
    assert depths == depths[:1] * 5


def _error(leader: Leader[Any]) -> CodecError:
    with pytest.raises(CodecError) as raised:
        _ = leader.data
    return raised.value


def test_a_leader_reads_like_the_record_that_it_is() -> None:
    leader = Leader("c", {"port": 1}, 7)
    match leader:
        case Leader(name, data, epoch):
            assert (name, data, epoch) == ("c", {"port": 1}, 7)
    assert pickle.loads(pickle.dumps(leader)) == leader  # noqa: S301  pickled a moment ago
    assert leader != Leader("c", {"port": 1}, 8)
    assert leader != ("c", {"port": 1}, 7)


def test_a_leader_that_cannot_be_read_is_named_to_the_reader_only() -> None:
    views = LeaderViews("s", JSON)
    with pytest.raises(StoreError, match="damaged"):
        views.leader(state(1, DAMAGED))
    change = views.change(state(1, c=b"1"), state(2, DAMAGED), None)
    assert change is not None
    assert change.leader is None


def test_undecodable_leaders_reach_listeners(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    events: list[Any] = []
    election = client.leader_election("s", JSON)
    election.add_listener(events.append, initial=True)
    eventually(lambda: events)
    with other.leader_election("s").lead("c", "no JSON"):
        eventually(lambda: len(events) == 2)
        assert events[-1].leader == election.get_leader()
        assert events[-1].leader.id == "c"
        _error(events[-1].leader)
    eventually(lambda: len(events) == 3)
    assert events[-1].leader is None


def values(*states: Snapshot, initial: bool = False) -> list[ValueChange[Any]]:
    """Return the calls of a listener that begins with the first of *states*."""
    describe = _ValueChanges(Key("ns", "a"), JSON)
    steps = pairwise(states)
    begun = [describe(None, states[0], None)] if initial else []
    events = begun + [describe(old, new, frozenset("a")) for old, new in steps]
    return [event for event in events if event is not None]


def test_a_value_deleted_after_it_was_unreadable_is_gone() -> None:
    (gone,) = values(state(1, a=b"1"), state(2, DAMAGED), state(3))
    assert gone == ValueChange("ns/a", None, None)


def test_no_version_comes_twice_after_a_record_was_unreadable() -> None:
    assert values(state(1, a=b"1"), state(2, DAMAGED), state(3, a=b"1")) == []
    assert values(state(1), state(2, DAMAGED), state(3)) == []


def test_a_listener_begins_with_an_unreadable_record() -> None:
    for initial in (False, True):
        (gone,) = values(state(1, DAMAGED), state(2), initial=initial)
        assert gone.value is None
        (made,) = values(state(1, DAMAGED), state(2, a=b"1"), initial=initial)
        assert made.value == 1
    assert values(state(1, a=b"1"), initial=True) == [ValueChange("ns/a", 1, Version(1))]


def test_an_undecodable_value_is_left_out_and_logged_once(
    warnings: pytest.LogCaptureFixture,
) -> None:
    made, gone = values(state(1), state(2, a=b"?"), state(3, a=b"?"), state(4, a=b"1"), state(5))
    assert (made.value, gone.value) == (1, None)
    assert len(warnings.records) == 1


def test_undecodable_values_keep_no_listener_from_going_on(client: PluginLocator) -> None:
    events: list[Any] = []
    client.listener_registry(JSON).add_value_change_listener("ns/a", events.append)
    storage = client.storage()
    storage.put("ns/a", "no JSON")
    storage.update("ns/a", "1")
    eventually(lambda: [event.value for event in events] == [1])


def test_members_are_decoded_when_they_are_asked_for() -> None:
    decoded: list[bytes] = []

    class Counting:
        name = "counting"

        def encode(self, value: str) -> bytes:
            return value.encode()

        def decode(self, data: bytes) -> str:
            decoded.append(data)
            return data.decode()

    views = GroupViews("g", Counting())
    many = {str(number): Entry(Version(1), "n", b"old") for number in range(1000)}
    first = Snapshot(1, many)
    joined = Snapshot(2, many | {"new": Entry(Version(1), "n", b"new")})
    listeners = [Changes(views) for _ in range(10)]
    changes = [each(first, joined, frozenset({"new"})) for each in listeners]
    assert len(decoded) == 1000 + 10, "the state that all begin with is decoded once"
    change = changes[0]
    assert change is not None
    members = change.members
    assert (len(members), "5" in members, "x" in members) == (1001, True, False)
    assert (members["5"], members["5"], members.get("x")) == ("old", "old", None)
    assert len(decoded) == 1011
    assert members == dict(members.items()) == pickle.loads(pickle.dumps(members))  # noqa: S301
    assert len(decoded) == 2010


def test_undecodable_members_stay_hidden_while_others_change() -> None:
    views = GroupViews("g", JSON)
    changes, first = Changes(views), state(1, bad=b"?", good=b"1")
    second = state(2, bad=b"?", good=b"1", more=b"2")._replace(delta=Delta(1, frozenset({"more"})))
    change = changes(first, second, frozenset({"more"}))
    assert change is not None
    assert change.joined == {"more"}
    assert change.members.undecodable == {"bad"}
    assert (list(change.members), len(change.members)) == (["good", "more"], 2)
    assert "bad" not in change.members
    with pytest.raises(KeyError):
        change.members["bad"]
    mended = state(3, bad=b"3", good=b"1", more=b"2")
    change = changes(second, mended, frozenset({"bad"}))
    assert change is not None
    assert change.joined == {"bad"}
    assert not change.members.undecodable
    assert change.members == {"bad": 3, "good": 1, "more": 2}


def test_a_member_that_becomes_unreadable_has_left() -> None:
    changes, first = Changes(GroupViews("g", JSON)), state(1, a=b"1", b=b"2")
    change = changes(first, state(2, DAMAGED, b=b"2"), frozenset({"a"}))
    assert change is not None
    assert change.left == {"a"}
    assert change.members.unreadable == {"a"}
    assert change.members == {"b": 2}
