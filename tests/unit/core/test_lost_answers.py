"""Outcomes of writes whose answer is lost, over a real store that loses it on purpose."""

from concurrent.futures import Future
from typing import TypeVar

import pytest
from typing_extensions import override

from kip30 import (
    KeyExistsError,
    KeyMissingError,
    OutcomeUnknownError,
    PartialWriteError,
    PluginLocator,
    UnavailableError,
)
from kip30.driver import StorageDriver
from kip30.driver.kit.futures import failed
from kip30.driver.records import Condition, Write, new_nonce
from kip30.names import parse_key
from kip30.runtime.lost_answers import Wait, insist, settle

from .trouble import faults

pytestmark = pytest.mark.virtual_time

T = TypeVar("T")


class Patient(Wait):
    @override
    def __call__(self, future: Future[T]) -> T:
        return future.result()

    @override
    def is_over(self) -> bool:
        return False


def test_a_put_succeeds_even_if_its_answer_is_lost(client: PluginLocator) -> None:
    storage = client.storage()
    faults(client).lose_answers("storage.write")
    version = storage.put("a", "mine")
    found = storage.get("a")
    assert found is not None
    assert (found.value, found.version) == ("mine", version)


def test_an_update_and_a_compare_and_set_are_settled_too(client: PluginLocator) -> None:
    storage = client.storage()
    first = storage.put("a", "1")
    faults(client).lose_answers("storage.write")
    second = storage.compare_and_set("a", first, "2")
    faults(client).lose_answers("storage.write")
    third = storage.update("a", "3")
    assert first < second < third
    assert storage.fetch("a").result() == "3"


def test_a_compare_and_set_that_was_not_done_is_done_when_repeated(client: PluginLocator) -> None:
    driver: StorageDriver = client.backend.storage
    write = Write(parse_key("old"), "n", b"x", client.storage().put("old", "1"))
    lost = OutcomeUnknownError("lost")
    version = settle(driver, write, Patient(), lost)
    entry = driver.read((write.key,)).result()[0]
    assert entry is not None
    assert (entry.nonce, entry.version) == ("n", version)


def test_a_put_is_not_repeated_for_it_may_have_been_deleted_again(client: PluginLocator) -> None:
    write = Write(parse_key("new"), "n", b"x", Condition.ABSENT)
    with pytest.raises(OutcomeUnknownError):
        settle(client.backend.storage, write, Patient(), OutcomeUnknownError("l"))
    assert client.storage().get("new") is None


def test_a_write_overwritten_before_it_is_settled_stays_unknown(client: PluginLocator) -> None:
    storage = client.storage()
    storage.put("a", "theirs")
    write = Write(parse_key("a"), "mine", b"x", Condition.PRESENT)
    with pytest.raises(OutcomeUnknownError, match="'a'"):
        settle(client.backend.storage, write, Patient(), OutcomeUnknownError("l"))
    assert storage.fetch("a").result() == "theirs"


def test_a_delete_whose_answer_is_lost_stays_unknown(client: PluginLocator) -> None:
    storage = client.storage()
    storage.put("a", "1")
    faults(client).lose_answers("storage.write")
    with pytest.raises(OutcomeUnknownError):
        storage.delete("a")
    assert storage.get("a") is None


def test_without_a_second_answer_the_outcome_is_unknown(client: PluginLocator) -> None:
    faults(client).lose_answers("storage.write")
    faults(client).fail("storage.read")
    with pytest.raises(OutcomeUnknownError, match="reading the record"):
        client.storage().put("a", "1")
    assert client.storage().fetch("a").result() == "1"


def test_a_refusal_needs_no_settling(client: PluginLocator) -> None:
    storage = client.storage()
    storage.put("a", "1")
    faults(client).fail("storage.read")
    with pytest.raises(KeyExistsError):
        storage.put("a", "2")
    with pytest.raises(KeyMissingError):
        storage.update("b", "2")
    faults(client).clear()
    faults(client).fail("storage.write")
    with pytest.raises(UnavailableError):
        storage.put("b", "2")
    assert storage.get("b") is None


def test_many_writes_are_settled_one_by_one(client: PluginLocator) -> None:
    storage = client.storage()
    storage.put("k/3", "theirs")
    faults(client).lose_answers("storage.write_many", times=5)
    with pytest.raises(PartialWriteError) as caught:
        storage.put_many({f"k/{n}": str(n) for n in range(5)})
    assert set(caught.value.done) == {"k/0", "k/1", "k/2", "k/4"}
    assert list(caught.value.failed) == ["k/3"]
    assert storage.fetch("k/3").result() == "theirs"


def test_insisting_ends_with_the_last_error() -> None:
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        failed(OutcomeUnknownError("lost")).result()

    with pytest.raises(OutcomeUnknownError):
        insist(ask, Patient())
    assert len(asked) == 3


def test_a_call_ends_by_its_deadline_however_often_it_settles(client: PluginLocator) -> None:
    faults(client).delay("storage.write", 60, times=None)
    with pytest.raises(OutcomeUnknownError, match=r"no answer|lost"):
        client.storage().put("a", "1")


def test_nothing_is_read_once_the_deadline_has_passed(client: PluginLocator) -> None:
    class Late(Patient):
        @override
        def is_over(self) -> bool:
            return True

    faults(client).fail("storage.read", times=None)
    write = Write(parse_key("a"), new_nonce(), b"", Condition.ABSENT)
    error = OutcomeUnknownError("lost")
    with pytest.raises(OutcomeUnknownError):
        settle(client.backend.storage, write, Late(), error)
    assert faults(client).counted() == 0


def test_an_unknown_outcome_is_not_made_definite_by_a_refused_repetition() -> None:
    errors = iter([OutcomeUnknownError("lost"), UnavailableError("refused")])

    def ask() -> None:
        raise next(errors)

    with pytest.raises(OutcomeUnknownError, match="lost"):
        insist(ask, Patient())
