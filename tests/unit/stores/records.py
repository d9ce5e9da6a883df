"""Many records, large ones, and such as kip30 did not write."""

from typing import ClassVar, Protocol

import pytest

from kip30 import BYTES, KeySetChange, StoreError, ValueChange
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from tests.unit.clients import PATIENT, Open

LARGE = 200 * 1024


class VendorClient(Protocol):
    """A client of the vendor's, which knows nothing of kip30."""

    def put(self, key: str, value: bytes) -> object: ...

    def delete(self, key: str) -> object: ...


class RecordCases:
    """Attributes of a store's subclass.

    Attributes:
        names: More keys of one namespace than one answer has.
        members: More members than one answer has, with data of *member_bytes* each.
        before_namespace: What the store's keys have before the namespace.
    """

    names: ClassVar[int]
    members: ClassVar[int]
    member_bytes: ClassVar[int]
    before_namespace: ClassVar[str] = ""

    def test_more_names_than_one_answer_has(self, open_client: Open) -> None:
        storage = open_client(**PATIENT).storage()
        names = [f"n/{number:06d} é" for number in range(self.names)]
        for at in range(0, self.names, 1000):
            storage.put_many(dict.fromkeys(names[at : at + 1000], ""))
        assert list(storage.list("n")) == names

    def test_a_group_of_more_than_one_answer_has(self, open_client: Open) -> None:
        client = open_client(**PATIENT)
        group = client.group_membership("g", BYTES)
        data = {f"m{number}": bytes([number]) * self.member_bytes for number in range(self.members)}
        for member, record in data.items():
            group.join(member, record)
        assert open_client(**PATIENT).group_membership("g", BYTES).membership() == data

    def test_many_writes_in_one_call_are_large_and_alone(self, open_client: Open) -> None:
        storage = open_client(**PATIENT).storage(BYTES)
        values = {f"w/{number}": bytes([number]) * LARGE for number in range(25)}
        assert len(set(storage.put_many(values).values())) > 1
        assert storage.fetch_many(values).result() == values

    def test_a_foreign_value_is_an_error_to_its_reader_alone(
        self, open_client: Open, namespace: str, admin: VendorClient
    ) -> None:
        storage = open_client(**PATIENT).storage()
        storage.put("f/ours", "v")
        admin.put(f"{self.before_namespace}{namespace}/kv/f/theirs", b"not of kip30")
        futures = [storage.fetch(key) for key in ("f/ours", "f/theirs", "f/ours")]
        assert [futures[0].result(), futures[2].result()] == ["v", "v"]
        with pytest.raises(StoreError, match="f/theirs"):
            futures[1].result()

    def test_listeners_go_on_beside_foreign_keys(
        self, open_client: Open, namespace: str, admin: VendorClient
    ) -> None:
        client = open_client(**PATIENT)
        heard = Recorder[KeySetChange]()
        client.listener_registry().add_key_set_change_listener("f", heard)
        admin.put(f"{self.before_namespace}{namespace}/kv/f/=no-name-of-ours", b"")
        client.storage().put("f/ours", "v")
        eventually(lambda: any("f/ours" in str(one) for one in heard.events))

    def test_listeners_go_on_after_a_foreign_value(
        self, open_client: Open, namespace: str, admin: VendorClient
    ) -> None:
        client = open_client(**PATIENT)
        heard = Recorder[ValueChange[str]]()
        storage = client.storage()
        storage.put("f/k", "1")
        client.listener_registry().add_value_change_listener("f/k", heard)
        admin.put(f"{self.before_namespace}{namespace}/kv/f/k", b"not of kip30")
        storage.update("f/k", "2")
        eventually(lambda: heard.events and heard.events[-1].value == "2")
