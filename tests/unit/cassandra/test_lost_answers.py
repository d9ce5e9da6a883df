"""Writes whose response was lost: their signature settles them, despite any later writes."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import pytest

from kip30 import KeyMissingError, Storage, Version
from kip30.config import Written
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble, Link
from tests.unit.clients import Open

T = TypeVar("T")

PATIENT: dict[str, Written] = {
    "plugin.operation.timeout.ms": round(8000 * time_scale()),
    "plugin.session.timeout.ms": round(10_000 * time_scale()),
}


class Deaf(NamedTuple):
    """A client whose responses can be dropped, and the link that drops them."""

    storage: Storage[str]
    link: Link
    pool: ThreadPoolExecutor


@pytest.fixture
def deaf(ensemble: Ensemble, open_client: Open) -> Iterator[Deaf]:
    with ensemble.link() as link, ThreadPoolExecutor() as pool:
        client = open_client(**link.settings(), **PATIENT)
        client.storage().put("there", "old")
        yield Deaf(client.storage(), link, pool)


def test_a_put_that_was_seen_and_deleted(deaf: Deaf, open_client: Open) -> None:
    other = open_client().storage()
    putting = _with_lost_answer(deaf, lambda: deaf.storage.put("new", "mine"))
    seen = eventually(lambda: other.get("new"), what="it is done")
    other.delete("new")
    deaf.link.heal()
    assert putting.result() == seen.version
    assert other.get("new") is None


def test_an_update_that_was_overwritten(deaf: Deaf, open_client: Open) -> None:
    other = open_client().storage()
    updating = _with_lost_answer(deaf, lambda: deaf.storage.update("there", "mine"))
    mine = eventually(lambda: _version(other, "mine"), what="it is done")
    theirs = other.update("there", "theirs")
    deaf.link.heal()
    assert updating.result() == mine < theirs
    assert other.fetch("there").result() == "theirs"


def test_a_delete(deaf: Deaf, open_client: Open) -> None:
    other = open_client().storage()
    deleting = _with_lost_answer(deaf, lambda: deaf.storage.delete("there"))
    eventually(lambda: other.get("there") is None, what="it is done")
    version = other.put("there", "anew")
    deaf.link.heal()
    assert deleting.result() is None
    assert _version(other, "anew") == version


def test_a_refusal(deaf: Deaf, open_client: Open) -> None:
    other = open_client().storage()
    deaf.link.swallow_answers()
    updating = deaf.pool.submit(deaf.storage.update, "absent", "mine")
    eventually(lambda: deaf.link.counted().dropped_to_client, what="an answer is lost")
    other.put("else", "")
    deaf.link.heal()
    assert type(updating.exception()) is KeyMissingError
    assert other.get("absent") is None


def _with_lost_answer(deaf: Deaf, write: Callable[[], T]) -> Future[T]:
    deaf.link.swallow_answers()
    return deaf.pool.submit(write)


def _version(storage: Storage[str], value: str) -> Version | None:
    found = storage.get("there")
    return found.version if found is not None and found.value == value else None
