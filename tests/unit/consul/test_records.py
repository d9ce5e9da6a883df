"""Many records, large ones, and such as kip30 did not write."""

import base64
from functools import partial

import pytest

from kip30 import BYTES, KeySetChange, PartialWriteError, StoreError, ValueChange, Version
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from tests.unit.clients import PATIENT, Open
from tests.unit.stores.records import RecordCases

from .admin import Admin

LARGE = 256 * 1024


class TestRecords(RecordCases):
    names = 5_000
    members = 20
    member_bytes = LARGE


def test_the_largest_value_and_the_longest_names(open_client: Open) -> None:
    client = open_client(**PATIENT, **{"plugin.namespace": "n" * 255})
    storage = client.storage(BYTES)
    key = f"{'a' * 255}/{'b' * 255}"
    version = storage.put(key, bytes(LARGE))
    version = storage.compare_and_set(key, version, bytes(range(256)) * 1024)
    storage.update(key, bytes(LARGE))
    storage.delete(key)


def test_refused_writes_do_not_stop_those_beside_them(open_client: Open) -> None:
    storage = open_client(**PATIENT).storage()
    there = [f"b/{number}" for number in range(0, 100, 7)]
    storage.put_many(dict.fromkeys(there, "old"))
    wanted = {f"b/{number}": "new" for number in range(100)}
    with pytest.raises(PartialWriteError) as raised:
        storage.put_many(wanted)
    assert set(raised.value.failed) == set(there)
    assert storage.fetch_many(wanted).result() == {**wanted, **dict.fromkeys(there, "old")}


def test_a_member_that_no_session_holds_is_none(
    open_client: Open, namespace: str, admin: Admin
) -> None:
    group = open_client(**PATIENT).group_membership("g")
    group.join("other", "")
    record = base64.b64decode(admin.get(f"{namespace}/group/g/other")["Value"])
    admin.put(f"{namespace}/group/g/m", record)
    assert group.membership_list() == {"other"}
    assert group.membership().unreadable == {"m"}
    with pytest.raises(StoreError, match=f"{namespace}/group/g/m is no claim of kip30"):
        group.join("m", "")
    admin.delete(f"{namespace}/group/g/m")
    group.join("m", "")
    assert group.membership_list() == {"m", "other"}


def test_more_is_observed_than_has_a_connection_each(open_client: Open) -> None:
    client = open_client(**PATIENT)
    registry, storage = client.listener_registry(), client.storage()
    told = {f"o/{number}": Recorder[ValueChange[str]]() for number in range(30)}
    members, keys = Recorder[object](), Recorder[KeySetChange]()
    for key, listener in told.items():
        registry.add_value_change_listener(key, listener)
    client.group_membership("g").add_listener(members)
    registry.add_key_set_change_listener("o", keys)
    versions = storage.put_many(dict.fromkeys(told, "1"))
    versions = {key: storage.update(key, "2") for key in versions}
    client.group_membership("g").join("m", "")
    for key, listener in told.items():
        eventually(partial(_was_told, listener, versions[key]))
    members.expect_count(1)
    eventually(lambda: keys.events and keys.events[-1].keys == set(told))
    for key in told:
        storage.delete(key)
    for listener in told.values():
        listener.expect(lambda event: event.value is None and event.version is None)
    eventually(lambda: keys.events[-1].keys == frozenset())


def _was_told(listener: Recorder[ValueChange[str]], version: Version) -> bool:
    return any(event.version == version for event in listener.events)
