"""The record of runs that have succeeded: what it keeps, refuses, and does without an answer."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kip30 import (
    AuthenticationError,
    Fence,
    FencedError,
    InvalidNameError,
    OutcomeUnknownError,
    PluginLocator,
    StoreError,
    UnavailableError,
    UsageError,
)
from kip30.codecs import BYTES
from kip30.runner.completed_runs import (
    KEPT,
    CompletedRun,
    CompletedRuns,
    check_run_key,
    record_key,
)
from kip30.storage import Storage

FENCE = Fence("s", 1)
KEY = record_key("s")
RUN = CompletedRun("monday", "me", 1, 1_700_000_000.5)


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[Storage[bytes]]:
    settings: dict[str, str | Path] = {
        "plugin.backend": "embedded",
        "plugin.embedded.directory": tmp_path,
    }
    with PluginLocator().startup(settings) as locator, locator.leader_election("s").lead("me", ""):
        yield locator.storage(BYTES)


def test_a_run_is_found_once_it_was_added(storage: Storage[bytes]) -> None:
    runs = CompletedRuns(storage, "s")
    assert runs.find("monday") is None
    runs.add(RUN, FENCE)
    assert runs.find("monday") == RUN
    assert runs.find("tuesday") is None
    assert "'monday' was done by me, epoch 1, 2023-11-14 22:13:20 UTC" in RUN.described()


def test_the_first_run_of_a_key_stays(storage: Storage[bytes]) -> None:
    runs = CompletedRuns(storage, "s")
    runs.add(RUN, FENCE)
    runs.add(RUN._replace(candidate="other"), FENCE)
    assert runs.find("monday") == RUN


def test_the_last_hundred_are_kept(storage: Storage[bytes]) -> None:
    runs = CompletedRuns(storage, "s")
    longest = ["\\" * 123 + f"{number:05d}" for number in range(KEPT + 2)]
    for key in longest:
        runs.add(RUN._replace(key=key, candidate='"' * 85), FENCE)
    assert [runs.find(key) is not None for key in longest] == [False, False, *[True] * KEPT]


def test_fields_of_later_versions_are_kept(storage: Storage[bytes]) -> None:
    row = {"key": "sunday", "candidate": "c", "epoch": 1, "at": 0.0, "more": "x"}
    storage.put(KEY, json.dumps({"format": 1, "done": [row], "else": 7}).encode())
    CompletedRuns(storage, "s").add(RUN, FENCE)
    found = storage.get(KEY)
    assert found is not None
    record = json.loads(found.value)
    assert (record["else"], record["done"][0]) == (7, row)


def test_odd_rows_of_another_client_do_not_prevent_a_note(
    storage: Storage[bytes],
) -> None:
    storage.put(KEY, b'{"format": 1, "done": [{"key": "\\ud800"}]}')
    runs = CompletedRuns(storage, "s")
    runs.add(RUN, FENCE)
    assert runs.find("monday") == RUN
    assert runs.find("\ud800") is not None


@pytest.mark.parametrize("at", ["1e300", "NaN", "-Infinity", "-1e12", "1e12", '"today"'])
def test_a_time_that_cannot_be_printed_does_not_hide_a_run(
    storage: Storage[bytes], at: str
) -> None:
    storage.put(KEY, f'{{"format": 1, "done": [{{"key": "k", "at": {at}}}]}}'.encode())
    found = CompletedRuns(storage, "s").find("k")
    assert found is not None
    assert "1970-01-01" in found.described()


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"format": 2}',
        b'{"format": 1, "done": 5}',
        b'{"format": 1, "done": [5]}',
        b"[" * 100_000,
    ],
)
def test_a_record_that_cannot_be_read_is_no_empty_one(
    storage: Storage[bytes], damaged: bytes
) -> None:
    storage.put(KEY, damaged)
    runs = CompletedRuns(storage, "s")
    calls: list[Callable[[], object]] = [lambda: runs.find("k"), lambda: runs.add(RUN, FENCE)]
    for call in calls:
        with pytest.raises(StoreError, match=rf"{KEY} .*: delete it if its commands may run again"):
            call()
    found = storage.get(KEY)
    assert found is not None
    assert found.value == damaged


class Scripted:
    """Stands in for a storage: each `put` raises the next error, and does it if it is lost."""

    def __init__(self, storage: Storage[bytes], *errors: Exception) -> None:
        self._storage = storage
        self._errors = [*errors]

    def get(self, key: str) -> Any:
        return self._storage.get(key)

    def put(self, key: str, data: bytes, *, fence: Fence) -> None:
        error = self._errors.pop(0) if self._errors else None
        if error is None or "done" in str(error):
            self._storage.put(key, data, fence=fence)
        if error is not None:
            raise error


def scripted(storage: Storage[bytes], *errors: Exception) -> CompletedRuns:
    stand_in: Any = Scripted(storage, *errors)
    return CompletedRuns(stand_in, "s")


@pytest.mark.parametrize(
    "error", [UnavailableError("away"), OutcomeUnknownError("lost"), OutcomeUnknownError("done")]
)
def test_a_run_is_added_again_while_the_term_is_valid(
    storage: Storage[bytes], error: Exception
) -> None:
    runs = scripted(storage, error)
    runs.add(RUN, FENCE, goes_on=lambda: True)
    assert runs.find("monday") == RUN


def test_an_answer_that_was_lost_leaves_the_outcome_unknown(storage: Storage[bytes]) -> None:
    with pytest.raises(UnavailableError):
        scripted(storage, UnavailableError("away")).add(RUN, FENCE)
    for later in (UnavailableError("away"), FencedError("s"), AuthenticationError("expired")):
        runs, answers = scripted(storage, OutcomeUnknownError("lost"), later), [False, True]
        with pytest.raises(OutcomeUnknownError, match="lost"):
            runs.add(RUN, FENCE, goes_on=answers.pop)


def test_an_older_fence_adds_nothing(storage: Storage[bytes]) -> None:
    with pytest.raises(FencedError):
        CompletedRuns(storage, "s").add(RUN, Fence("s", 0), goes_on=lambda: True)
    assert storage.get(KEY) is None


@pytest.mark.parametrize("key", ["", "a\n", "a\x1b[2J", "é" * 65, "\ud800"])
def test_a_key_that_is_none_is_refused(key: str) -> None:
    with pytest.raises(UsageError):
        check_run_key(key)


@pytest.mark.parametrize("service", ["a/b", "a/", "/", "ü" * 10, "x" * 255])
def test_every_service_has_a_record_of_its_own(storage: Storage[bytes], service: str) -> None:
    runs = CompletedRuns(storage, service)
    assert runs.find("k") is None
    assert record_key(service) != record_key("a")


def test_a_service_with_too_long_a_name_is_refused() -> None:
    with pytest.raises(InvalidNameError):
        record_key("ü" * 40)
