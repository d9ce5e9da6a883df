"""The services and groups of a store: `kip30 services`, `kip30 groups`."""

import sqlite3
from contextlib import closing

import pytest

from kip30 import PluginLocator
from kip30.cli._exit_codes import Status
from kip30.cli._schema import SCHEMA
from kip30.recipes import Lock
from kip30_conformance.polling import eventually
from tests.unit.unreadable_leader import add_unreadable_leader

from .shell import Shell
from .test_output import expect_fields, on_terminal


@pytest.fixture
def locator(shell: Shell) -> PluginLocator:
    return PluginLocator().startup(str(shell.properties))


def test_a_store_without_claims_has_neither_services_nor_groups(shell: Shell) -> None:
    shell("kv", "put", "k", "v")
    assert shell("services").output == shell("groups").output == ""


def test_a_store_that_does_not_exist_is_not_an_empty_one(shell: Shell) -> None:
    result = shell("services")
    assert result.exit_code == Status.UNAVAILABLE
    assert "nothing has been stored there" in result.stderr


def test_services_are_listed_with_leader_epoch_and_line(
    shell: Shell, locator: PluginLocator
) -> None:
    with locator, PluginLocator().startup(str(shell.properties)) as other:
        with locator.leader_election("gone").lead("host-1", ""):
            pass
        locator.leader_election("b/with a\tname").nominate("host-1", "")
        assert not other.leader_election("b/with a\tname").nominate("host-2", "")
        eventually(
            lambda: shell("services").stdout == "b/with a\\tname\thost-1\t1\t1\ngone\t-\t1\t0\n",
            what="the one that waits is in line",
        )
        found = shell.json("services")
    led = {"service": "b/with a\tname", "leader": "host-1", "epoch": 1, "waiting": 1}
    gone = {"service": "gone", "leader": None, "epoch": 1, "waiting": 0}
    assert found == [{**led, "readable": True}, {**gone, "readable": True}]
    for record in found:
        expect_fields(record, SCHEMA["services"])


def test_a_service_without_a_leader_is_listed_while_candidates_wait(
    shell: Shell, locator: PluginLocator
) -> None:
    with locator:
        locator.group_membership("kip30.candidates/vacant").join("0123456789abcdef", "")
        locator.group_membership("kip30.candidates//hashed").join("0123456789abcdef", "")
        assert shell("services").stdout == "vacant\t-\t-\t1\n"


def test_groups_are_listed_with_their_numbers_of_members(
    shell: Shell, locator: PluginLocator
) -> None:
    with locator:
        for member in ("m1", "m2"):
            locator.group_membership("workers").join(member, "")
        left = locator.group_membership("left")
        left.join("m1", "")
        left.leave("m1")
        assert shell("groups").stdout == "workers\t2\t0\n"
        (found,) = shell.json("groups")
        expect_fields(found, SCHEMA["groups"])
        shown = on_terminal(shell, 80, "groups")
    assert [line.split() for line in shown] == [
        ["GROUP", "MEMBERS", "BANNED"],
        ["workers", "2", "0"],
    ]


def test_those_of_kip30_itself_are_listed_on_request(shell: Shell, locator: PluginLocator) -> None:
    with locator, Lock(locator, "door").acquire():
        assert shell("services").output == ""
        assert shell("services", "--all").stdout.startswith("kip30.lock/door\t")


def test_a_record_that_cannot_be_read_is_named(shell: Shell, locator: PluginLocator) -> None:
    with locator:
        for member in ("m1", "m2"):
            locator.group_membership("g").join(member, "")
        with closing(sqlite3.connect(shell.folder / "store" / "kip30.db")) as database, database:
            assert database.execute("UPDATE member SET data = 5 WHERE id = x'6d31'").rowcount == 1
        result = shell("groups")
    assert (result.exit_code, result.stdout) == (Status.OK, "g\t1\t0\n")
    assert "is left out" in result.stderr


def test_a_leader_that_cannot_be_read_is_no_missing_one(
    shell: Shell, locator: PluginLocator
) -> None:
    with locator:
        locator.leader_election("s").nominate("host-1", "")
        add_unreadable_leader(shell.folder / "store", "a/b")
        result = shell("services")
        found = shell.json("services")
    assert result.stdout == "a/b\t?\t1\t0\ns\thost-1\t1\t0\n"
    assert "service/a/b is left out" in result.stderr
    assert [(one["leader"], one["readable"]) for one in found] == [(None, False), ("host-1", True)]
