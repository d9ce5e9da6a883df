"""An import whose store falls silent, or changes, while it writes."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from kip30 import KeyExistsError, OutcomeUnknownError, PartialWriteError, UnavailableError
from kip30.driver.records import Version
from kip30.errors import Kip30Error, VersionConflictError
from kip30.operations import ImportPlan, plan_import, write_import

KEYS = [f"k{number:03d}" for number in range(450)]
MISSING = dict.fromkeys(KEYS, b"v")
DIFFERENT = {"a": (b"v", Version(1)), "b": (b"v", Version(2))}


class Scripted:
    """Stands in for a storage: the calls with these numbers fail with these errors."""

    def __init__(self, **errors: Mapping[int, Kip30Error]) -> None:
        self.calls: dict[str, int] = {"put_many": 0, "compare_and_set": 0}
        self.parts: list[int] = []
        self._errors = errors

    def fetch_many(self, keys: Iterable[str]) -> Future[dict[str, bytes]]:
        self.parts.append(len(list(keys)))
        found = Future[dict[str, bytes]]()
        found.set_result({})
        return found

    def put_many(self, values: Mapping[str, bytes]) -> None:
        self.parts.append(len(values))
        error = self._next("put_many")
        if error is not None:
            failed = dict.fromkeys(values, error)
            if isinstance(error, KeyExistsError):
                failed = dict([failed.popitem()])
            raise PartialWriteError({}, failed)

    def compare_and_set(self, *_: object) -> None:
        error = self._next("compare_and_set")
        if error is not None:
            raise error

    def _next(self, name: str) -> Kip30Error | None:
        self.calls[name] += 1
        return self._errors.get(name, {}).get(self.calls[name])


def test_all_is_written() -> None:
    storage: Any = Scripted()
    done = write_import(storage, ImportPlan(MISSING, DIFFERENT, 0), update=True)
    assert done == (450, 2, [], [], {}, None)
    assert storage.calls == {"put_many": 3, "compare_and_set": 2}


@pytest.mark.parametrize(
    ("size", "parts"),
    [(0, [200, 200, 50]), (250 * 1024, [16] * 28 + [2]), (5 * 1024 * 1024, [1] * 450)],
)
def test_a_call_has_a_limit_of_keys_and_of_bytes(size: int, parts: list[int]) -> None:
    """One operation timeout is for all of a call, also of large values."""
    values = dict.fromkeys(KEYS, bytes(size))
    reading: Any = Scripted()
    plan = plan_import(reading, values, value_bytes=size)
    assert (plan.missing, reading.parts) == (values, parts)
    writing: Any = Scripted()
    assert write_import(writing, plan, update=False).created == 450
    assert writing.parts == parts


def test_nothing_is_replaced_unless_asked() -> None:
    storage: Any = Scripted()
    assert write_import(storage, ImportPlan(MISSING, DIFFERENT, 0), update=False).updated == 0
    assert storage.calls["compare_and_set"] == 0


def test_a_conflict_stops_no_other_key() -> None:
    storage: Any = Scripted(
        put_many={1: KeyExistsError("k")}, compare_and_set={1: VersionConflictError("a")}
    )
    done = write_import(storage, ImportPlan(MISSING, DIFFERENT, 0), update=True)
    assert (done.created, done.updated) == (449, 1)
    assert done.conflicts == ["k199", "a"]


@pytest.mark.parametrize(
    ("error", "unknown"),
    [(UnavailableError("away"), 0), (OutcomeUnknownError("lost"), 200)],
)
def test_nothing_more_is_sent_to_a_store_that_does_not_answer(
    error: Kip30Error, unknown: int
) -> None:
    storage: Any = Scripted(put_many={2: error})
    done = write_import(storage, ImportPlan(MISSING, DIFFERENT, 0), update=True)
    assert (done.created, done.updated) == (200, 0)
    assert storage.calls == {"put_many": 2, "compare_and_set": 0}
    assert len(done.unknown) == unknown
    assert len(done.failed) == 252 - unknown
    assert isinstance(done.failed["b"], UnavailableError)
