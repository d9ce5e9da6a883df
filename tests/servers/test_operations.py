"""The directory and keys in bulk, on each store with servers."""

from collections.abc import Callable, Mapping

import pytest

from kip30 import PluginLocator
from kip30.codecs import BYTES
from kip30.config import Written
from kip30.operations import (
    KeyScan,
    delete_versions,
    plan_import,
    read_directory,
    read_overview,
    set_for,
    sweep_keys,
    write_import,
)
from kip30.recipes import Lock
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from tests.unit.clients import PATIENT, unused_namespace

from .conftest import EACH_STORE

VALUES = {"top": b"1", "a/b": b"\xff\x00", "a/b/c": b"", "a-b/c": b"x"}

pytestmark = pytest.mark.parametrize("store", EACH_STORE)


@pytest.fixture
def properties(store: str, shared_server: Callable[[str], Ensemble]) -> Mapping[str, Written]:
    return {
        **shared_server(store).settings(),
        **PATIENT,
        "plugin.namespace": unused_namespace(),
    }


def test_services_groups_and_lines_are_found(properties: Mapping[str, Written], store: str) -> None:
    locators = [PluginLocator().startup(properties) for _ in range(2)]
    with locators[0] as one, locators[1] as other, Lock(one, "door").acquire():
        one.group_membership("workers").join("m/1", "")
        other.group_membership("workers").join("m/2", "")
        with one.leader_election("gone").lead("host-1", ""):
            pass
        one.leader_election("led").nominate("host-1", "")
        assert not other.leader_election("led").nominate("host-2", "")
        expected = 1 if one.backend.election.forms_line else 0
        eventually(
            lambda: [one.waiting for one in read_directory(properties).services][-1] == expected,
            what="the second candidate is in line",
        )
        found, everything = read_directory(properties), read_directory(properties, internal=True)
    assert [(one.group, one.members) for one in found.groups] == [("workers", 2)]
    led = {one.service: one.leader for one in found.services}
    assert led["led"] == "host-1"
    # docs/metrics.md: what an alert can see of a service that has neither leader nor candidates.
    keeps_epochs = store not in {"etcd", "consul"}
    assert led.keys() == ({"led", "gone"} if keeps_epochs else {"led"})
    assert led.get("gone") is None
    assert {"kip30.lock/door", "led"} <= {one.service for one in everything.services}
    assert not found.unreadable


def test_an_overview_counts_and_finds_lasting_vacancies(properties: Mapping[str, Written]) -> None:
    with PluginLocator().startup(properties) as locator:
        forms_line = locator.backend.election.forms_line
        locator.group_membership("workers").join("m/1", "")
        locator.leader_election("led").nominate("host-1", "")
        locator.group_membership("kip30.candidates/vacant").join("0123456789abcdef", "")
        # A service must be vacant for no longer than that; the member's own session lasts longer.
        brief = {"plugin.session.timeout.ms": 5_000, "plugin.operation.timeout.ms": 5_000}
        found = read_overview({**properties, **brief})
    assert {one.service: one.leader for one in found.services}["led"] == "host-1"
    assert [(one.group, one.members) for one in found.groups] == [("workers", 1)]
    assert not found.unreadable
    assert found.place
    if forms_line:
        assert [one.service for one in found.leaderless] == ["vacant"]


def test_keys_are_exported_imported_and_deleted(
    properties: Mapping[str, Written],
) -> None:
    other = {**properties, "plugin.namespace": unused_namespace()}
    with PluginLocator().startup(properties) as locator, PluginLocator().startup(other) as target:
        storage, copy = locator.storage(BYTES), target.storage(BYTES)
        for key, value in VALUES.items():
            storage.put(key, value)
        storage.put("kip30.counter/c/value", b"7")
        found = list(KeyScan(properties))
        assert {one.key: one.value for one in found} == VALUES
        assert {one.key for one in KeyScan(properties, "a")} == {"a/b", "a/b/c"}
        plan = plan_import(copy, {one.key: one.value for one in found}, value_bytes=256 * 1024)
        done = write_import(copy, plan, update=False)
        assert (done.created, done.conflicts, done.unknown, done.failed) == (4, [], [], {})
        assert {one.key: one.value for one in KeyScan(other)} == VALUES
        storage.set("a/b", b"changed")
        storage.delete("top")
        deleted = delete_versions(storage, [(one.key, one.version) for one in found])
        assert deleted == (2, ["a/b"], ["top"], [], [], None, {})
        assert {one.key: one.value for one in KeyScan(properties)} == {"a/b": b"changed"}


def test_keys_end_and_those_written_again_stay(properties: Mapping[str, Written]) -> None:
    with PluginLocator().startup(properties) as locator:
        storage = locator.storage(BYTES)
        for key in VALUES:
            set_for(storage, key, b"x", 1e-6)
        set_for(storage, "lasting", b"x", 3_600)
        storage.update("a/b", b"again")
        assert sweep_keys(properties, storage, dry_run=True) == (3, 1, 1, {}, None)
        assert sweep_keys(properties, storage) == (3, 1, 1, {}, None)
        assert {one.key for one in KeyScan(properties)} == {"a/b", "lasting"}
        assert sweep_keys(properties, storage) == (0, 1, 0, {}, None)
