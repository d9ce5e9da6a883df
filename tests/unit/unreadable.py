"""Records of other programs below a prefix: left out and named, and never logged by the store."""

import logging
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple, Protocol

import pytest

from kip30 import PluginLocator, StoreError
from kip30.driver.record_format import seal
from kip30.driver.records import Kind, Snapshot, Target, new_nonce
from kip30_conformance.polling import eventually

_FUTURE = b"\x02of a newer kip30"
_UNOWNED = seal(new_nonce(), b"", name="c")
"""A claim of kip30's: a vendor's client writes it without a session."""


class Writer(Protocol):
    """A client of the vendor's."""

    def put(self, key: str, value: bytes) -> object: ...

    def delete(self, key: str) -> object: ...


class Case(NamedTuple):
    """A *target* that shows a record at *key*, below the namespace, by *name*."""

    target: Target
    key: str
    name: str
    record: bytes = _FUTURE


def cases(escaped: str) -> list[Case]:
    """Return one of each kind; *escaped* is a segment that stands for no name."""
    return [
        Case(Target(Kind.GROUP, "g"), "group/g/bad", "bad"),
        Case(Target(Kind.GROUP, "g"), f"group/g/{escaped}", escaped),
        Case(Target(Kind.MEMBER, "g", "bad"), "group/g/bad", "bad"),
        Case(Target(Kind.NAMESPACE, "n"), "kv/n/=ZZ", "=ZZ"),
        Case(Target(Kind.VALUE, "n", "bad"), "kv/n/bad", "bad"),
        Case(Target(Kind.SERVICE, "s"), "service/s/leader", "s"),
        Case(Target(Kind.GROUP, "g"), "group/g/bad", "bad", _UNOWNED),
        Case(Target(Kind.MEMBER, "g", "bad"), "group/g/bad", "bad", _UNOWNED),
        Case(Target(Kind.SERVICE, "s"), "service/s/leader", "s", _UNOWNED),
    ]


def kind_of(case: Case) -> str:
    kind = case.target.kind.value
    return f"{kind}-without-session" if case.record is _UNOWNED else kind


def expect_named_and_left_out(
    client: PluginLocator, writer: Writer, root: str, case: Case, log: pytest.LogCaptureFixture
) -> None:
    log.set_level(logging.WARNING)
    target, key, name, record = case
    observe = client.backend.observe
    told: list[Snapshot] = []
    watch = observe.watch(target, told.append)
    eventually(lambda: told)
    writer.put(f"{root}/{key}", record)
    eventually(lambda: set(told[-1].unreadable) == {name})
    read = observe.snapshot(target).result()
    assert (read.entries, read.unreadable) == ({}, told[-1].unreadable)
    assert name in read.unreadable[name]
    again: list[Snapshot] = []
    observe.watch(target, again.append).close()
    writer.delete(f"{root}/{key}")
    eventually(lambda: not told[-1].unreadable)
    watch.close()
    assert not [one for one in log.records if one.levelno >= logging.WARNING]


def expect_good_ones_beside_bad(client: PluginLocator, writer: Writer, root: str) -> None:
    group, storage = client.group_membership("g"), client.storage()
    writer.put(f"{root}/group/g/bad", _FUTURE)
    writer.put(f"{root}/kv/n/=ZZ", _FUTURE)
    states: dict[Kind, Snapshot] = {}
    for target in (Target(Kind.GROUP, "g"), Target(Kind.NAMESPACE, "n")):
        client.backend.observe.watch(target, partial(states.__setitem__, target.kind))
    group.join("good", "data")
    storage.put("n/good", "value")
    assert group.membership() == {"good": "data"}
    assert group.membership().unreadable == {"bad"}
    assert list(storage.list("n")) == ["n/good"]
    eventually(lambda: _seen(states) == {Kind.GROUP: {"good"}, Kind.NAMESPACE: {"good"}})
    assert set(states[Kind.GROUP].unreadable) == {"bad"}
    assert set(states[Kind.NAMESPACE].unreadable) == {"=ZZ"}


def _seen(states: Mapping[Kind, Snapshot]) -> dict[Kind, set[str]]:
    return {kind: set(state.entries) for kind, state in states.items()}


def expect_no_claim_in_their_place(client: PluginLocator, writer: Writer, root: str) -> None:
    writer.put(f"{root}/group/g/bad", _FUTURE)
    writer.put(f"{root}/service/s/leader", _FUTURE)
    with pytest.raises(StoreError, match=f"{root}/group/g/bad holds no record"):
        client.group_membership("g").join("bad", "")
    with pytest.raises(StoreError, match=f"{root}/service/s/leader holds no record"):
        client.backend.election.claim("s", "c", "00" * 8, b"").result()
    writer.put(f"{root}/group/g/unowned", _UNOWNED)
    writer.put(f"{root}/service/t/leader", _UNOWNED)
    with pytest.raises(StoreError, match=f"{root}/group/g/unowned is no claim of kip30"):
        client.group_membership("g").join("unowned", "")
    with pytest.raises(StoreError, match=f"{root}/service/t/leader is no claim of kip30"):
        client.leader_election("t").nominate("c", "")
