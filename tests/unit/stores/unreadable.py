"""Records of other programs below a prefix: left out and named, and never logged by the store."""

import logging
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, NamedTuple

import pytest

from kip30 import StoreError
from kip30.config import Written
from kip30.driver.record_format import seal
from kip30.driver.records import Kind, Snapshot, Target, new_nonce
from kip30_conformance.polling import eventually
from tests.unit.clients import PATIENT, Open

from .records import VendorClient

_FUTURE = b"\x02of a newer kip30"
_UNOWNED = seal(new_nonce(), b"", name="c")
"""A claim of kip30's: a vendor's client writes it without a session."""
_ESCAPED = "<escaped>"


class Case(NamedTuple):
    """A *target* that shows a record at *key*, below the namespace, by *name*."""

    target: Target
    key: str
    name: str
    record: bytes = _FUTURE

    @property
    def kind(self) -> str:
        kind = self.target.kind.value
        return f"{kind}-without-session" if self.record is _UNOWNED else kind


CASES = [
    Case(Target(Kind.GROUP, "g"), "group/g/bad", "bad"),
    Case(Target(Kind.GROUP, "g"), f"group/g/{_ESCAPED}", _ESCAPED),
    Case(Target(Kind.MEMBER, "g", "bad"), "group/g/bad", "bad"),
    Case(Target(Kind.NAMESPACE, "n"), "kv/n/=ZZ", "=ZZ"),
    Case(Target(Kind.VALUE, "n", "bad"), "kv/n/bad", "bad"),
    Case(Target(Kind.SERVICE, "s"), "service/s/leader", "s"),
    Case(Target(Kind.GROUP, "g"), "group/g/bad", "bad", _UNOWNED),
    Case(Target(Kind.MEMBER, "g", "bad"), "group/g/bad", "bad", _UNOWNED),
    Case(Target(Kind.SERVICE, "s"), "service/s/leader", "s", _UNOWNED),
]


class UnreadableCases:
    """Attributes of a store's subclass.

    Attributes:
        escaped: A segment of a key that stands for no name.
        before_namespace: What the store's keys have before the namespace.
        watching: Properties of a client that watches.
    """

    escaped: ClassVar[str]
    before_namespace: ClassVar[str] = ""
    watching: ClassVar[Mapping[str, Written]] = PATIENT

    @pytest.fixture
    def root(self, namespace: str) -> str:
        return f"{self.before_namespace}{namespace}"

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
    def test_unreadable_records_are_named_and_left_out(
        self,
        open_client: Open,
        root: str,
        admin: VendorClient,
        caplog: pytest.LogCaptureFixture,
        case: Case,
    ) -> None:
        caplog.set_level(logging.WARNING)
        observe = open_client(**self.watching).backend.observe
        target, key, name, record = case
        key, name = (one.replace(_ESCAPED, self.escaped) for one in (f"{root}/{key}", name))
        told: list[Snapshot] = []
        watch = observe.watch(target, told.append)
        eventually(lambda: told)
        admin.put(key, record)
        eventually(lambda: set(told[-1].unreadable) == {name})
        read = observe.snapshot(target).result()
        assert (read.entries, read.unreadable) == ({}, told[-1].unreadable)
        assert name in read.unreadable[name]
        again: list[Snapshot] = []
        observe.watch(target, again.append).close()
        admin.delete(key)
        eventually(lambda: not told[-1].unreadable)
        watch.close()
        assert not [one for one in caplog.records if one.levelno >= logging.WARNING]

    def test_good_records_beside_bad_ones(
        self, open_client: Open, root: str, admin: VendorClient
    ) -> None:
        client = open_client(**PATIENT)
        group, storage = client.group_membership("g"), client.storage()
        admin.put(f"{root}/group/g/bad", _FUTURE)
        admin.put(f"{root}/kv/n/=ZZ", _FUTURE)
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

    def test_a_foreign_record_where_one_is_claimed(
        self, open_client: Open, root: str, admin: VendorClient
    ) -> None:
        client = open_client(**PATIENT)
        admin.put(f"{root}/group/g/bad", _FUTURE)
        admin.put(f"{root}/service/s/leader", _FUTURE)
        with pytest.raises(StoreError, match=f"{root}/group/g/bad holds no record"):
            client.group_membership("g").join("bad", "")
        with pytest.raises(StoreError, match=f"{root}/service/s/leader holds no record"):
            client.backend.election.claim("s", "c", "00" * 8, b"").result()
        admin.put(f"{root}/group/g/unowned", _UNOWNED)
        admin.put(f"{root}/service/t/leader", _UNOWNED)
        with pytest.raises(StoreError, match=f"{root}/group/g/unowned is no claim of kip30"):
            client.group_membership("g").join("unowned", "")
        with pytest.raises(StoreError, match=f"{root}/service/t/leader is no claim of kip30"):
            client.leader_election("t").nominate("c", "")


def _seen(states: Mapping[Kind, Snapshot]) -> dict[Kind, set[str]]:
    return {kind: set(state.entries) for kind, state in states.items()}
