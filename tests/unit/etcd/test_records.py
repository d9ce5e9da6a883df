"""Many records, large ones, and such as kip30 did not write."""

from contextlib import suppress

import pytest

from kip30 import (
    BYTES,
    KeySetChange,
    Member,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    ValueChange,
)
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from tests.unit.clients import PATIENT, Open

from .admin import Admin

MANY = 30_000
LARGE = 200 * 1024


def test_more_names_than_one_answer_has(open_client: Open) -> None:
    storage = open_client(**PATIENT).storage()
    names = [f"n/{number:06d} é" for number in range(MANY)]
    for at in range(0, MANY, 3000):
        storage.put_many(dict.fromkeys(names[at : at + 3000], ""))
    assert list(storage.list("n")) == names


def test_a_group_of_more_than_ten_megabytes(open_client: Open) -> None:
    client = open_client(**PATIENT)
    group = client.group_membership("g", BYTES)
    data = {f"m{number}": bytes([number]) * LARGE for number in range(60)}
    for member, record in data.items():
        group.join(member, record)
    assert open_client(**PATIENT).group_membership("g", BYTES).membership() == data


def test_many_writes_in_one_call_are_large_and_alone(open_client: Open) -> None:
    storage = open_client(**PATIENT).storage(BYTES)
    values = {f"w/{number}": bytes(LARGE) for number in range(25)}
    assert len(set(storage.put_many(values).values())) > 1
    assert storage.fetch_many(values).result() == values


def test_a_foreign_value_is_an_error_to_its_reader_alone(
    open_client: Open, namespace: str, admin: Admin
) -> None:
    storage = open_client(**PATIENT).storage()
    storage.put("f/ours", "v")
    admin.put(f"/{namespace}/kv/f/theirs", b"not of kip30")
    futures = [storage.fetch(key) for key in ("f/ours", "f/theirs", "f/ours")]
    assert [futures[0].result(), futures[2].result()] == ["v", "v"]
    with pytest.raises(StoreError, match="f/theirs"):
        futures[1].result()


def test_listeners_go_on_beside_foreign_keys(
    open_client: Open, namespace: str, admin: Admin
) -> None:
    client = open_client(**PATIENT)
    heard = Recorder[KeySetChange]()
    client.listener_registry().add_key_set_change_listener("f", heard)
    admin.put(f"/{namespace}/kv/f/=no-name-of-ours", b"")
    client.storage().put("f/ours", "v")
    eventually(lambda: any("f/ours" in str(one) for one in heard.events))


def test_listeners_go_on_after_a_foreign_value(
    open_client: Open, namespace: str, admin: Admin
) -> None:
    client = open_client(**PATIENT)
    heard = Recorder[ValueChange[str]]()
    storage = client.storage()
    storage.put("f/k", "1")
    client.listener_registry().add_value_change_listener("f/k", heard)
    admin.put(f"/{namespace}/kv/f/k", b"not of kip30")
    storage.update("f/k", "2")
    eventually(lambda: heard.events and heard.events[-1].value == "2")


@pytest.mark.parametrize(("asked_ms", "granted"), [(100, 2.0), (2000, 2.0), (2001, 3.0)])
def test_leases_are_whole_seconds_and_two_at_least(
    open_client: Open, asked_ms: int, granted: float
) -> None:
    client = open_client(
        **{"plugin.session.timeout.ms": asked_ms, "plugin.operation.timeout.ms": 100}
    )
    group = client.group_membership("g")

    def joined() -> Member | None:
        # A tenth of a second is too short for a request to a busy server.
        with suppress(UnavailableError, OutcomeUnknownError):
            return group.join("m", "")
        return None

    assert eventually(joined).timeout_seconds == granted
    assert client.backend.describe()["session timeout"] == f"{granted:g} s"
