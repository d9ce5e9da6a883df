"""Guarantees of every store beside records that are not its own: N01 to N13.

They come from other programs, newer versions of kip30, and damage. Each affects only the
calls that name that very record.
"""

import logging
import re
from collections.abc import Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30 import (
    BYTES,
    JSON,
    CodecError,
    LeaderChange,
    PluginLocator,
    ValueChange,
)
from kip30.driver.records import Kind
from kip30_conformance.clients.bystanders import GROUP, NAMESPACE, Bystanders, lists
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.harness import Harness
from kip30_conformance.hypothesis_settings import searching
from kip30_conformance.neighbour.base import Neighbour, Spot, leader, member, value
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, Suite, supported
from kip30_conformance.suites.foreign_record_checks import (
    expect_nothing_worse,
    expect_unreadable,
    has_member,
    has_value,
    is_readable,
    leader_id,
    listen,
    look_anyway,
    refusal_of_claim,
    refusal_of_write,
    shows_leader,
    sound_record,
    warnings_of,
)

_BAD = b"\xff"
_SPOTS = (value(NAMESPACE, "bad"), member(GROUP, "bad"), leader("bad"))
_LOOKS = 50
_OURS = re.compile(r"steady|k[0-9]+")


class NeighbourTests(Suite):
    """Foreign, damaged, future and huge records beside clients that continue."""

    @pytest.fixture
    def bystanders(self, open_client: OpenClient) -> Bystanders:
        """Return clients at work."""
        return Bystanders(open_client(), open_client())

    @pytest.fixture
    def neighbour(self, harness: Harness, root: str, bystanders: Bystanders) -> Iterator[Neighbour]:
        """Yield another program; the clients are started first, so that there is a store."""
        del bystanders
        with supported(harness.neighbour, root) as neighbour:
            yield neighbour

    def test_N01_member_of_another_codec(
        self, open_client: OpenClient, bystanders: Bystanders
    ) -> None:
        """A member whose data others cannot decode is named, and does not hide others."""
        raw, client = open_client().group_membership(GROUP, BYTES), open_client()
        raw.join("bad", _BAD)
        bystanders.expect_well("a member of another codec")
        view = client.group_membership(GROUP).membership()
        assert view.undecodable == {"bad"}
        assert "bad" not in view
        assert "bad" in client.group_membership(GROUP).membership_list()
        raw.update("bad", b"good")
        bystanders.members.expect(lambda change: "bad" in change.joined)
        raw.leave("bad")
        bystanders.members.expect(lambda change: "bad" in change.left)
        bystanders.expect_well("the member has left")

    def test_N02_leader_of_another_codec(
        self, open_client: OpenClient, client: PluginLocator, bystanders: Bystanders
    ) -> None:
        """A leader whose data others cannot decode is still reported; only its data is an error."""
        raw, election = open_client().leader_election("bad", BYTES), client.leader_election("bad")
        leaders = Recorder[LeaderChange[str]]()
        election.add_listener(leaders)
        assert raw.nominate("c", _BAD)
        heard = leaders.expect(lambda change: change.leader is not None).leader
        for found in (heard, election.get_leader()):
            assert found is not None
            assert found.id == "c"
            with pytest.raises(CodecError):
                _ = found.data
        bystanders.expect_well("a leader of another codec")
        raw.resign("c")
        leaders.expect(lambda change: change.leader is None)
        assert election.nominate("next", "data")
        leaders.expect(lambda change: change.leader is not None and change.leader.id == "next")

    def test_N03_value_of_another_codec(
        self, open_client: OpenClient, client: PluginLocator, bystanders: Bystanders
    ) -> None:
        """A value that others cannot decode fails alone; its listeners get the next one."""
        raw, storage = open_client().storage(BYTES), client.storage(JSON)
        values = Recorder[ValueChange[object]]()
        client.listener_registry(JSON).add_value_change_listener(f"{NAMESPACE}/bad", values)
        raw.put(f"{NAMESPACE}/bad", _BAD)
        bystanders.expect_well("a value of another codec")
        with pytest.raises(CodecError):
            storage.get(f"{NAMESPACE}/bad")
        assert not lists(client) or f"{NAMESPACE}/bad" in set(storage.list(NAMESPACE))
        version = raw.set(f"{NAMESPACE}/bad", b"1")
        assert values.expect_count(1) == [ValueChange(f"{NAMESPACE}/bad", 1, version)]

    @pytest.mark.parametrize("spot", _SPOTS, ids=lambda spot: spot.kind.value)
    def test_N04_unreadable_record(
        self, client: PluginLocator, neighbour: Neighbour, bystanders: Bystanders, spot: Spot
    ) -> None:
        """A foreign, future, huge or damaged record is an error of the calls that name it."""
        bystanders.expect_well("before")
        for how, form in neighbour.unreadable_forms(sound_record(neighbour, client, spot)).items():
            neighbour.write(spot, form)
            expect_unreadable(client, spot, how)
            bystanders.expect_well(f"{spot.kind.value} with {how}")
        neighbour.remove(spot)
        bystanders.expect_well("after")
        eventually(lambda: is_readable(client, spot), what="nothing is left of it")

    @pytest.mark.parametrize("spot", _SPOTS, ids=lambda spot: spot.kind.value)
    def test_N05_damaged_bits(
        self, client: PluginLocator, neighbour: Neighbour, bystanders: Bystanders, spot: Spot
    ) -> None:
        """A flipped bit anywhere in a record affects at most that record."""
        damaged_forms = neighbour.damaged_forms(sound_record(neighbour, client, spot))
        if not damaged_forms:
            pytest.skip("the store keeps no envelopes whose bits could flip")
        for how, form in damaged_forms.items():
            neighbour.write(spot, form)
            expect_nothing_worse(client, spot, how)
        bystanders.expect_well("flipped bits")
        neighbour.remove(spot)
        bystanders.expect_well("after")

    @pytest.mark.parametrize("kind", [Kind.VALUE, Kind.MEMBER], ids=lambda kind: kind.value)
    def test_N06_foreign_names(
        self, client: PluginLocator, neighbour: Neighbour, bystanders: Bystanders, kind: Kind
    ) -> None:
        """A name that is none of kip30's is left out of lists and changes."""
        scope = NAMESPACE if kind is Kind.VALUE else GROUP
        spots = [Spot(kind, scope, name, is_raw=True) for name in neighbour.stray_names]
        if not spots:
            pytest.skip("every text is a name in this store")
        for spot in spots:
            neighbour.write(spot, neighbour.sound(spot, b"data"))
            bystanders.expect_well(f"{kind.value} by the name {spot.name!r:.20}")
        listed = {key.removeprefix(f"{NAMESPACE}/") for key in client.storage().list(NAMESPACE)}
        assert {name for name in listed if not _OURS.fullmatch(name)} == set()
        unreadable = client.group_membership(GROUP).membership().unreadable
        assert len(unreadable) == (len(spots) if kind is Kind.MEMBER else 0)
        for spot in spots:
            neighbour.remove(spot)
        bystanders.expect_well("after")
        assert not client.group_membership(GROUP).membership().unreadable

    def test_N07_foreign_directories(
        self, client: PluginLocator, neighbour: Neighbour, bystanders: Bystanders
    ) -> None:
        """A foreign record where a directory is, or would be, does no harm to others."""
        for kind in (Kind.VALUE, Kind.MEMBER, Kind.SERVICE):
            for scope in ({Kind.VALUE: NAMESPACE, Kind.MEMBER: GROUP}.get(kind, "s"), "new"):
                supported(neighbour.write_above, kind, scope)
                bystanders.expect_well(f"a record at the directory of {kind.value} {scope!r}")
        client.storage().put("new/k", "v")
        client.group_membership("new").join("m", "")
        assert client.leader_election("new").nominate("c", "")
        assert list(client.storage().list("new")) == ["new/k"]
        assert client.group_membership("new").membership() == {"m": ""}

    @pytest.mark.parametrize(
        "kind", [Kind.VALUE, Kind.MEMBER, Kind.SERVICE], ids=lambda kind: kind.value
    )
    def test_N08_planted_count(
        self, client: PluginLocator, neighbour: Neighbour, bystanders: Bystanders, kind: Kind
    ) -> None:
        """A count that cannot be raised stops its namespace, group or service, and no other."""
        supported(neighbour.plant, kind, "planted")
        bystanders.expect_well("a planted count")
        refusal = refusal_of_write(client, kind, "planted")
        assert refusal is None or "planted" in refusal
        bystanders.expect_well("after a write to the planted scope")

    def test_N09_value_readable_again(
        self, client: PluginLocator, neighbour: Neighbour, bystanders: Bystanders
    ) -> None:
        """A value that becomes readable is an event of its listener, and is read.

        A store that polls by a revision, which no neighbour raises, notices it with the next
        change of the namespace.
        """
        spot, key = value(NAMESPACE, "bad"), f"{NAMESPACE}/bad"
        values = Recorder[ValueChange[str]]()
        client.listener_registry().add_value_change_listener(key, values)
        for how, form in neighbour.unreadable_forms(neighbour.sound(spot, b"data")).items():
            neighbour.write(spot, form)
            bystanders.expect_well(how)
            neighbour.write(spot, neighbour.sound(spot, how.encode()))
            bystanders.expect_well(f"{how}, and sound again")
            values.expect(partial(has_value, how))
            found = client.storage().get(key)
            assert found is not None
            assert found.value == how
        assert set(client.storage().list(NAMESPACE)) >= {key}
        bystanders.keys.expect(lambda event: {key, "bad"} & set(event.keys))

    def test_N09_member_readable_again(
        self,
        client: PluginLocator,
        open_client: OpenClient,
        neighbour: Neighbour,
        bystanders: Bystanders,
    ) -> None:
        """A member in the place of an unreadable record is an event of the group's listeners."""
        spot = member(GROUP, "bad")
        for number, (how, form) in enumerate(
            neighbour.unreadable_forms(neighbour.sound(spot, b"data")).items()
        ):
            neighbour.write(spot, form)
            bystanders.members.expect(lambda change: "bad" in change.members.unreadable)
            assert client.group_membership(GROUP).membership().unreadable == {"bad"}, how
            neighbour.remove(spot)
            with open_client() as other:
                other.group_membership(GROUP).join("bad", str(number))
                bystanders.members.expect(partial(has_member, "bad", str(number)))
                assert client.group_membership(GROUP).membership()["bad"] == str(number)

    def test_N09_leader_readable_again(
        self,
        client: PluginLocator,
        open_client: OpenClient,
        neighbour: Neighbour,
        bystanders: Bystanders,
    ) -> None:
        """A leader in the place of an unreadable record is shown, and is an event of listeners."""
        spot, election = leader("bad"), client.leader_election("bad")
        leaders = Recorder[LeaderChange[str]]()
        election.add_listener(leaders)
        sound = sound_record(neighbour, client, spot)
        for how, form in neighbour.unreadable_forms(sound).items():
            before = len(leaders.events)
            neighbour.write(spot, form)
            expect_unreadable(client, spot, how)
            bystanders.expect_well(how)
            neighbour.remove(spot)
            with open_client() as other:
                assert other.leader_election("bad").nominate("next", how)
                assert leader_id(client, "bad") == "next", how
                eventually(
                    partial(shows_leader, leaders, before, "next"),
                    what=f"its listener hears after {how}",
                )

    @pytest.mark.parametrize("spot", _SPOTS, ids=lambda spot: spot.kind.value)
    def test_N10_logged_once(
        self,
        client: PluginLocator,
        neighbour: Neighbour,
        bystanders: Bystanders,
        spot: Spot,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """An unreadable record is logged once, however often and from wherever it is read."""
        lone = spot._replace(scope="lone")
        neighbour.write(lone, neighbour.unreadable_form(sound_record(neighbour, client, lone)))
        with caplog.at_level(logging.WARNING, logger="kip30"):
            for _ in range(3):
                listen(client, lone)
            for _ in range(_LOOKS):
                look_anyway(client, lone)
            eventually(lambda: warnings_of(caplog, lone), what="it is logged")
            bystanders.expect_well("something else")
        assert len(warnings_of(caplog, lone)) == 1

    def test_N11_rolling_upgrade(
        self, client: PluginLocator, neighbour: Neighbour, bystanders: Bystanders
    ) -> None:
        """While half of the members have a newer kip30, the others see each other."""
        spots = [member(GROUP, f"newer{number}") for number in range(5)]
        group = client.group_membership(GROUP)
        for number, spot in enumerate(spots):
            neighbour.write(spot, neighbour.unreadable_form(neighbour.sound(spot, b"newer")))
            group.join(f"ours{number}", str(number))
            bystanders.members.expect(partial(has_member, f"ours{number}", str(number)))
        bystanders.expect_well("half of the members are newer")
        ours = {f"ours{number}": str(number) for number in range(5)}
        view = group.membership()
        assert view == {**ours, "steady": ""}
        assert view.unreadable == {spot.name for spot in spots}
        for number, spot in enumerate(spots):
            neighbour.remove(spot)
            group.join(spot.name, str(number))
            bystanders.members.expect(partial(has_member, spot.name, str(number)))
        assert group.membership().unreadable == frozenset()
        bystanders.expect_well("all members are ours")

    def test_N12_random_bytes(
        self, client: PluginLocator, neighbour: Neighbour, bystanders: Bystanders
    ) -> None:
        """Bytes that another program writes affect at most their record."""

        @searching
        @given(spot=st.sampled_from(_SPOTS), data=st.binary(max_size=100))
        def throw(spot: Spot, data: bytes) -> None:
            neighbour.write(spot, neighbour.foreign(data))
            expect_nothing_worse(client, spot, repr(data))

        throw()
        bystanders.expect_well("random bytes")

    @pytest.mark.parametrize(
        "spot", [member(GROUP, "bad"), leader("bad")], ids=lambda spot: spot.kind.value
    )
    def test_N13_claim_without_session(
        self, client: PluginLocator, neighbour: Neighbour, bystanders: Bystanders, spot: Spot
    ) -> None:
        """A claim that ends with no session is an error of the calls that name it."""
        supported(neighbour.write_unowned, spot, sound_record(neighbour, client, spot))
        expect_unreadable(client, spot, "a claim without a session")
        if spot.kind is Kind.MEMBER:
            bystanders.members.expect(lambda change: "bad" in change.members.unreadable)
        refusal = refusal_of_claim(client, spot)
        assert refusal is not None, "it was claimed"
        assert "bad" in refusal
        bystanders.expect_well("a claim without a session")
        neighbour.remove(spot)
        eventually(lambda: is_readable(client, spot), what="nothing is left of it")
        assert refusal_of_claim(client, spot) is None
