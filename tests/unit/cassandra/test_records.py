"""Many records, and large ones."""

from kip30 import BYTES, KeySetChange
from kip30.driver.records import Condition, Write, new_nonce
from kip30.names import Key
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from tests.unit.clients import PATIENT, Open

MANY = 6000
LARGE = 200 * 1024


def test_more_names_than_the_driver_reads_at_a_time(open_client: Open) -> None:
    client, heard = open_client(**PATIENT), Recorder[KeySetChange]()
    storage = client.storage()
    names = [f"n/{number:06d} é" for number in range(MANY)]
    for at in range(0, MANY, 1000):
        storage.put_many(dict.fromkeys(names[at : at + 1000], ""))
    assert list(storage.list("n")) == names
    client.listener_registry().add_key_set_change_listener("n", heard)
    storage.delete(names[0])
    eventually(lambda: heard.events and heard.events[-1].keys == set(names[1:]))


def test_many_writes_in_one_call_are_large_and_alone(open_client: Open) -> None:
    storage = open_client(**PATIENT).storage(BYTES)
    values = {f"w/{number}": bytes([number]) * LARGE for number in range(25)}
    assert len(set(storage.put_many(values).values())) > 1
    assert storage.fetch_many(values).result() == values


def test_writes_that_wait_for_each_other_travel_together(open_client: Open) -> None:
    storage = open_client(**PATIENT).storage()
    versions = storage.put_many({f"n/{number}": "" for number in range(50)})
    assert len(set(versions.values())) <= 3


def test_the_version_of_what_was_deleted(open_client: Open) -> None:
    client = open_client(**PATIENT)
    last = client.storage().put("n/k", "v")
    deletion = Write(Key("n", "k"), new_nonce(), None, last, None)
    assert client.backend.storage.write(deletion).result() == last
    again = client.storage().put("n/k", "v")
    assert again > last
    unread = deletion._replace(nonce=new_nonce(), condition=Condition.PRESENT)
    assert client.backend.storage.write(unread).result() > again
