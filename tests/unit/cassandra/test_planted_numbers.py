"""Numbers that kip30 would never have written: they hurt their own partition alone."""

import time
from concurrent.futures import Future
from typing import Any

import pytest

from kip30 import KeyExistsError, Kip30Error, PluginLocator, StoreError, VersionConflictError
from kip30.driver.records import Condition, Version, Write
from kip30.names import Key
from kip30_conformance.polling import eventually
from tests.unit.clients import Open

from .admin import Admin

GREATEST = 2**63 - 1
LATE = 2**61
DAY = 86_400_000_000


def plant(admin: Admin, table: str, namespace: str, scope: str, value: int) -> None:
    column, number = {
        "records": ("namespace", "rev"),
        "members": ("in_group", "rev"),
        "leaders": ("service", "epoch"),
    }[table]
    admin.tell(
        f"UPDATE kip30.{table} SET {number} = %s WHERE root = %s AND {column} = %s",  # noqa: S608
        value,
        namespace,
        scope,
    )


def is_usable(client: PluginLocator, scope: str) -> bool:
    client.storage().set(f"{scope}/k", "v")
    group = client.group_membership(scope)
    group.join("m", "")
    group.leave("m")
    with client.leader_election(scope).lead("c", "") as leadership:
        client.storage().set(f"{scope}/k", "v", fence=leadership)
    return True


def test_a_revision_that_leaves_no_greater_one(
    open_client: Open, admin: Admin, namespace: str
) -> None:
    client = open_client()
    storage = client.storage()
    storage.put("n/k", "v")
    plant(admin, "records", namespace, "n", GREATEST)
    for write, key in ((storage.put, "n/new"), (storage.set, "n/k"), (storage.update, "n/k")):
        with pytest.raises(StoreError, match=f"records has rev = {GREATEST} where namespace = 'n'"):
            write(key, "v")
    with pytest.raises(KeyExistsError):
        storage.put("n/k", "v")
    assert storage.get("n/k")
    assert is_usable(client, "other")
    plant(admin, "records", namespace, "n", 1)
    client.storage().update("n/k", "mended")


def test_a_group_whose_revision_leaves_no_greater_one(
    open_client: Open, admin: Admin, namespace: str
) -> None:
    client = open_client()
    plant(admin, "members", namespace, "g", GREATEST)
    with pytest.raises(StoreError, match=r"members has rev = .* where in_group = 'g'"):
        client.group_membership("g").join("m", "")
    assert is_usable(client, "other")


def test_an_epoch_that_leaves_no_greater_one(
    open_client: Open, admin: Admin, namespace: str
) -> None:
    client = open_client()
    plant(admin, "leaders", namespace, "s", GREATEST)
    with pytest.raises(StoreError, match=r"leaders has epoch = .* where service = 's'"):
        claim(client, "s")
    assert is_usable(client, "other")
    plant(admin, "leaders", namespace, "s", 7)
    assert claim(client, "s").entry.version == Version(8)


def claim(client: PluginLocator, service: str) -> Any:
    return client.backend.election.claim(service, "c", "nonce", b"").result()


def test_a_revision_that_is_far_ahead_stays_where_it_is(
    open_client: Open, admin: Admin, namespace: str
) -> None:
    client = open_client()
    plant(admin, "records", namespace, "n", LATE)
    storage = client.storage()
    assert [storage.set("n/k", "v").major for _ in range(3)] == [LATE + 1, LATE + 2, LATE + 3]
    assert storage.set("other/k", "v").major < LATE


def test_a_group_whose_revision_is_far_ahead_ends_no_session(
    open_client: Open, admin: Admin, namespace: str
) -> None:
    client = open_client()
    in_two_days = time.time_ns() // 1000 + 2 * DAY
    plant(admin, "members", namespace, "g", in_two_days)
    group, election = client.group_membership("g"), client.leader_election("s")
    member = group.join("m", "old")
    assert member.incarnation.major > in_two_days
    with election.lead("c", "") as term:
        joined_until = member.deadline
        group.update("m", "new")
        eventually(
            lambda: member.deadline > joined_until + 2 * member.timeout_seconds,
            what="the session is renewed",
        )
        assert term.is_valid()
    assert group.member("m") is member
    assert group.membership() == {"m": "new"}


def test_invalid_writes_fail_without_the_other_writes_of_the_batch(open_client: Open) -> None:
    driver = open_client().backend.storage
    any_ = Condition.ANY
    conditions: list[Condition | Version] = [any_, Version(2**63), any_, Version(1, 1), any_]
    driver.write(Write(Key("n", "k3"), "first", b"", Condition.ANY)).result()
    writes = [
        Write(Key("n", f"k{at}"), f"nonce{at}", b"", one) for at, one in enumerate(conditions)
    ]
    writes.append(Write(Key("n", "k5"), "nonce5", "no bytes", Condition.ANY))  # type: ignore[arg-type]
    writes.append(Write(Key("n", "k6"), "nonce6", b"", Condition.ANY))
    ended = [error(one) for one in driver.write_many(writes)]
    assert [one is None for one in ended] == [True, False, True, False, True, False, True]
    assert all(isinstance(one, Kip30Error) for one in ended if one is not None)
    assert isinstance(ended[3], VersionConflictError)


def error(ended: "Future[Version]") -> BaseException | None:
    return ended.exception(10)
