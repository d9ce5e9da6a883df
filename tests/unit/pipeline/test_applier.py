"""Creating records in bulk: every outcome, exact sums, and no request too many."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kip30 import (
    BYTES,
    ClosedError,
    Fence,
    PluginLocator,
    StoreError,
    UnsupportedError,
    UsageError,
)
from kip30.driver import Capability
from kip30.driver.kit.futures import failed
from kip30.errors import AuthenticationError, KeyExistsError, KeyMissingError, Kip30Error
from kip30.names import parse_key
from kip30.pipeline.write.applier import MOST_IN_FLIGHT, Applied, Applier, NewRecord, WriteOutcome
from kip30.pipeline.write.outcomes import Nonces
from kip30_conformance.polling import eventually
from tests.unit.core.trouble import faults, has_arrived

from .requests import Answers, Requests

RECORDS = [NewRecord(f"n/{number}", b"d%d" % number, f"{number}") for number in range(10)]


def applier(client: PluginLocator, run: str = "r", fence: Fence | None = None) -> Applier:
    return Applier(client.backend, run, seconds=10, fence=fence)


def outcomes(applied: list[Applied]) -> list[WriteOutcome]:
    return [one.outcome for one in applied]


def count(applied: list[Applied]) -> dict[WriteOutcome, int]:
    return dict(Counter(outcomes(applied)))


def data(client: PluginLocator, *keys: str) -> list[bytes | None]:
    found = client.backend.storage.read([*map(parse_key, keys)]).result()
    return [None if entry is None else entry.data for entry in found]


def test_absent_keys_are_written(client: PluginLocator) -> None:
    applied = applier(client).create(RECORDS)
    assert [one.key for one in applied] == [record.key for record in RECORDS]
    assert count(applied) == {WriteOutcome.WRITTEN: 10}
    assert data(client, *(record.key for record in RECORDS)) == [one.data for one in RECORDS]
    entries = client.backend.storage.read([parse_key(one.key) for one in RECORDS]).result()
    assert [one.version for one in applied] == [entry and entry.version for entry in entries]


def test_nothing_is_done_about_nothing(client: PluginLocator, requests: Requests) -> None:
    assert applier(client).create([]) == []
    assert requests.counted() == ([], [])


def test_a_repetition_counts_as_written_and_writes_nothing(client: PluginLocator) -> None:
    first = applier(client).create(RECORDS[:6])
    second = applier(client).create(RECORDS)
    third = applier(client).create(RECORDS)
    assert second[:6] == first
    assert count(second) == {WriteOutcome.WRITTEN: 10}
    assert third == second


def test_equal_data_of_others_is_the_same(client: PluginLocator) -> None:
    first = applier(client, "one").create(RECORDS)
    second = applier(client, "other").create(RECORDS)
    assert count(second) == {WriteOutcome.SAME: 10}
    assert [one.version for one in second] == [one.version for one in first]


def test_another_version_of_the_source_is_not_this_record(client: PluginLocator) -> None:
    applier(client).create([NewRecord("k", b"1", "1")])
    applied = applier(client).create([NewRecord("k", b"2", "2")])
    assert outcomes(applied) == [WriteOutcome.CONFLICT]
    assert data(client, "k") == [b"1"]


def test_a_key_of_another_writer_is_a_conflict_and_stays(client: PluginLocator) -> None:
    version = client.storage(BYTES).put("n/3", b"theirs")
    applied = applier(client).create(RECORDS)
    assert count(applied) == {WriteOutcome.WRITTEN: 9, WriteOutcome.CONFLICT: 1}
    assert applied[3].outcome is WriteOutcome.CONFLICT
    assert applied[3].version == version
    assert str(version) in applied[3].detail
    assert data(client, "n/3") == [b"theirs"]


@pytest.mark.parametrize("key", ["", "/a", "a/", "a\ud800", "x" * 256, "é" * 128])
def test_a_key_that_cannot_be_is_rejected_alone(
    client: PluginLocator, requests: Requests, key: str
) -> None:
    applied = applier(client).create([RECORDS[0], NewRecord(key, b"", "1"), RECORDS[1]])
    assert outcomes(applied) == [WriteOutcome.WRITTEN, WriteOutcome.REJECTED, WriteOutcome.WRITTEN]
    assert applied[1].key == key
    assert applied[1].detail
    assert requests.counted() == ([], [2])


def test_data_over_the_limit_is_rejected_alone(client: PluginLocator) -> None:
    limit = client.backend.limits.value_bytes
    records = [NewRecord("most", bytes(limit), "1"), NewRecord("more", bytes(limit + 1), "1")]
    applied = applier(client).create(records)
    assert outcomes(applied) == [WriteOutcome.WRITTEN, WriteOutcome.REJECTED]
    assert str(limit) in applied[1].detail
    assert data(client, "more") == [None]


def test_it_looks_before_it_writes_only_where_something_is(
    client: PluginLocator, requests: Requests
) -> None:
    applier(client, "before").create(RECORDS)
    requests.counted()
    writer = applier(client)
    fresh = [NewRecord(f"fresh/{number}", b"", "1") for number in range(30)]
    asked = []
    for batch in (fresh[:10], RECORDS, RECORDS, fresh[10:20], fresh[20:]):
        writer.create(batch)
        asked.append(requests.counted())
    assert asked == [([], [10]), ([10], [10]), ([10], []), ([10], [10]), ([], [10])]


def test_a_request_has_at_most_the_allowed_number_of_writes(
    client: PluginLocator, requests: Requests
) -> None:
    many = [NewRecord(f"m/{number}", b"", "1") for number in range(MOST_IN_FLIGHT + 1)]
    writer = applier(client)
    assert count(writer.create(many)) == {WriteOutcome.WRITTEN: MOST_IN_FLIGHT + 1}
    assert requests.counted() == ([], [100, MOST_IN_FLIGHT - 99])
    more = [NewRecord(f"n/{number}", b"", "1") for number in range(MOST_IN_FLIGHT + 1)]
    assert count(writer.create(more)) == {WriteOutcome.WRITTEN: MOST_IN_FLIGHT + 1}
    assert requests.counted() == ([], [MOST_IN_FLIGHT, 1])


def test_lost_answers_are_looked_up(client: PluginLocator) -> None:
    faults(client).lose_answers("storage.write_many", times=3)
    applied = applier(client).create(RECORDS)
    assert count(applied) == {WriteOutcome.WRITTEN: 10}
    assert all(one.version for one in applied)


def test_a_late_write_is_unknown_until_it_is_repeated(client: PluginLocator) -> None:
    faults(client).arrive_late("storage.write_many", 1.0, times=2)
    applied = applier(client).create(RECORDS)
    assert outcomes(applied) == [WriteOutcome.UNKNOWN] * 2 + [WriteOutcome.WRITTEN] * 8
    assert "lost" in applied[0].detail
    eventually(has_arrived)
    again = applier(client).create(RECORDS)
    assert count(again) == {WriteOutcome.WRITTEN: 10}
    assert again[2:] == applied[2:]


def test_a_lost_answer_that_cannot_be_looked_up_is_unknown(client: PluginLocator) -> None:
    faults(client).lose_answers("storage.write_many")
    faults(client).fail("storage.read")
    applied = applier(client).create(RECORDS)
    assert outcomes(applied) == [WriteOutcome.UNKNOWN] + [WriteOutcome.WRITTEN] * 9
    assert count(applier(client).create(RECORDS)) == {WriteOutcome.WRITTEN: 10}


def test_a_store_that_does_not_answer_leaves_unknown(client: PluginLocator) -> None:
    faults(client).fail("storage.write_many", times=10)
    assert count(applier(client).create(RECORDS)) == {WriteOutcome.UNKNOWN: 10}
    assert data(client, "n/0") == [None]
    assert count(applier(client).create(RECORDS)) == {WriteOutcome.WRITTEN: 10}


def test_a_look_without_an_answer_leaves_unknown_and_writes_nothing(
    client: PluginLocator, requests: Requests
) -> None:
    writer = applier(client)
    client.storage(BYTES).put("n/0", b"theirs")
    writer.create(RECORDS[:1])
    faults(client).fail("storage.read")
    requests.counted()
    assert count(writer.create(RECORDS)) == {WriteOutcome.UNKNOWN: 10}
    assert requests.counted() == ([10], [])


@pytest.fixture
def drive(client: PluginLocator) -> Iterator[Callable[[], Fence]]:
    """Yield what has the next driver take over and returns its fence."""
    with ExitStack() as driver:

        def take_over() -> Fence:
            driver.close()
            election = driver.enter_context(client.leader_election("pipeline/r"))
            leadership = driver.enter_context(election.lead("d", "", timeout_seconds=10))
            return Fence(leadership.service, leadership.epoch)

        yield take_over


def test_a_former_driver_writes_nothing_and_asks_nothing_more(
    client: PluginLocator, requests: Requests, drive: Callable[[], Fence]
) -> None:
    writer = applier(client, fence=drive())
    assert count(writer.create(RECORDS[:2])) == {WriteOutcome.WRITTEN: 2}
    drive()
    applied = writer.create(RECORDS[2:])
    assert count(applied) == {WriteOutcome.FENCED: 8}
    assert "pipeline/r" in applied[0].detail
    assert data(client, *(one.key for one in RECORDS[2:])) == [None] * 8
    requests.counted()
    assert count(writer.create(RECORDS)) == {WriteOutcome.FENCED: 10}
    assert requests.counted() == ([], [])
    assert count(applier(client, fence=drive()).create(RECORDS)) == {WriteOutcome.WRITTEN: 10}


def test_a_driver_that_is_superseded_meanwhile_stops(
    client: PluginLocator, requests: Requests, drive: Callable[[], Fence]
) -> None:
    client.storage(BYTES).put("n/0", b"theirs")
    writer = Applier(client.backend, "r", seconds=10, fence=drive(), rate=60)
    requests.before_write = lambda: drive() if len(requests.writes) == 1 else None
    applied = writer.create(RECORDS)
    assert count(applied) == {
        WriteOutcome.CONFLICT: 1,
        WriteOutcome.WRITTEN: 2,
        WriteOutcome.FENCED: 7,
    }
    assert outcomes(applied)[0] is WriteOutcome.CONFLICT
    assert requests.writes == [3, 3]


def test_a_store_that_does_not_answer_is_not_asked_for_the_rest(
    client: PluginLocator, requests: Requests
) -> None:
    faults(client).fail("storage.write_many", times=None)
    applied = Applier(client.backend, "r", seconds=10, rate=60).create(RECORDS)
    assert count(applied) == {WriteOutcome.UNKNOWN: 10}
    assert requests.writes == [3]


@pytest.mark.parametrize("error", [AuthenticationError, StoreError, ClosedError])
def test_an_unusable_store_raises(
    client: PluginLocator, requests: Requests, error: type[Kip30Error]
) -> None:
    requests.after_write = lambda answers: [failed(error("no")) for _ in answers]
    with pytest.raises(error, match="no"):
        applier(client).create(RECORDS)
    requests.after_write = lambda answers: answers
    assert count(applier(client).create(RECORDS)) == {WriteOutcome.WRITTEN: 10}


@pytest.mark.parametrize("error", [AuthenticationError, StoreError, ClosedError])
def test_a_failed_write_is_unknown_and_the_others_are_written(
    client: PluginLocator, requests: Requests, error: type[Kip30Error]
) -> None:
    requests.after_write = lambda answers: [failed(error("no")), *answers[1:]]
    applied = applier(client).create(RECORDS)
    assert outcomes(applied) == [WriteOutcome.UNKNOWN] + [WriteOutcome.WRITTEN] * 9
    assert applied[0].detail == "no"


def test_a_closed_store_raises(client: PluginLocator) -> None:
    writer = applier(client)
    client.close()
    with pytest.raises(ClosedError):
        writer.create(RECORDS)


@pytest.mark.parametrize("turn", [1, -1])
def test_of_a_key_with_two_values_one_is_written_whatever_the_order(
    client: PluginLocator, requests: Requests, turn: int
) -> None:
    twice = [NewRecord("k", b"a", "1"), NewRecord("k", b"a", "1"), NewRecord("k", b"b", "2")][
        ::turn
    ]
    applied = applier(client).create(twice)
    assert requests.counted() == ([], [1])
    assert data(client, "k") == [b"a"]
    assert count(applied) == {
        WriteOutcome.WRITTEN: 1,
        WriteOutcome.SAME: 1,
        WriteOutcome.CONFLICT: 1,
    }
    assert applied[::turn][2].outcome is WriteOutcome.CONFLICT
    again = applier(client).create(twice[::-1])
    assert count(again) == count(applied)


def test_all_of_a_key_that_is_there_conflict(client: PluginLocator) -> None:
    client.storage(BYTES).put("k", b"theirs")
    applied = applier(client).create([NewRecord("k", b"a", "1"), NewRecord("k", b"b", "1")])
    assert count(applied) == {WriteOutcome.CONFLICT: 2}


def test_a_key_deleted_between_refusal_and_look_is_written(
    client: PluginLocator, requests: Requests
) -> None:
    storage = client.storage(BYTES)
    storage.put("n/0", b"theirs")

    def delete_it(answers: Answers) -> Answers:
        requests.after_write = lambda same: same
        storage.delete("n/0")
        return answers

    requests.after_write = delete_it
    assert count(applier(client).create(RECORDS)) == {WriteOutcome.WRITTEN: 10}
    assert data(client, "n/0") == [b"d0"]


def test_a_key_that_changes_all_the_time_conflicts(
    client: PluginLocator, requests: Requests
) -> None:
    requests.after_write = lambda answers: [failed(KeyExistsError("there")) for _ in answers]
    applied = Applier(client.backend, "other", seconds=10)
    applied_now = applied.create([NewRecord("never/there", b"", "1")])
    assert outcomes(applied_now) == [WriteOutcome.WRITTEN]  # it was written behind the refusal
    requests.after_write = refuse_and_delete(client)
    applied_now = applied.create([NewRecord("there/and/not", b"", "1")])
    assert outcomes(applied_now) == [WriteOutcome.CONFLICT]
    assert "keeps changing" in applied_now[0].detail


def refuse_and_delete(client: PluginLocator) -> Callable[[Answers], Answers]:
    def refuse(answers: Answers) -> Answers:
        client.storage(BYTES).delete("there/and/not")
        return [failed(KeyExistsError("there")) for _ in answers]

    return refuse


@pytest.mark.parametrize("seconds", [0, -1, math.nan])
def test_answers_need_time(client: PluginLocator, seconds: float) -> None:
    with pytest.raises(UsageError):
        Applier(client.backend, "r", seconds=seconds)


def test_answers_that_do_not_come_are_unknown(client: PluginLocator, requests: Requests) -> None:
    requests.after_write = lambda answers: [Future() for _ in answers]
    begun = time.monotonic()
    applied = Applier(client.backend, "r", seconds=0.2).create(RECORDS)
    assert 0.2 <= time.monotonic() - begun < 5
    # The writes were done, and their nonces tell.
    assert count(applied) == {WriteOutcome.WRITTEN: 10}


def test_a_fence_needs_a_store_that_fences(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.backend, "capabilities", frozenset[Capability]())
    with pytest.raises(UnsupportedError, match="fencing"):
        applier(client, fence=Fence("s", 1))


def test_nonces_are_of_run_key_and_source() -> None:
    parts = [("r", "k", "s"), ("rk", "", "s"), ("r", "ks", ""), ("", "rk", "s"), ("r", "k", "t")]
    nonces = [Nonces(run).of(key, source) for run, key, source in parts]
    assert len(set(nonces)) == len(parts)
    assert nonces[0] == Nonces("r").of("k", "s")
    assert all(len(bytes.fromhex(nonce)) == 8 for nonce in nonces)


KEYS = st.sampled_from(["a", "a/b", "c", "/no"])
STATES = {"s": b"", "t": b"1", "u": b"1"}
GIVEN = st.builds(lambda key, at: NewRecord(key, STATES[at], at), KEYS, st.sampled_from([*STATES]))
CALLS = st.lists(st.tuples(st.sampled_from(["r1", "r2"]), st.lists(GIVEN, max_size=6)), max_size=5)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CALLS, st.integers(0, 3))
def test_it_does_what_its_model_does(client: PluginLocator, calls: Any, lost: int) -> None:
    for key in ("a", "a/b", "c"):
        with suppress(KeyMissingError):
            client.storage(BYTES).delete(key)
    faults(client).clear()
    faults(client).lose_answers("storage.write_many", times=lost or 1)
    model: dict[str, tuple[str, NewRecord]] = {}
    for run, records in calls:
        while WriteOutcome.UNKNOWN in outcomes(applied := applier(client, run).create(records)):
            pass  # a lost answer of a refusal; each repetition meets fewer of them
        assert [(one.key, one.outcome) for one in applied] == expected(model, run, records)
    for key, (_, record) in model.items():
        assert data(client, key) == [record.data]


def expected(
    model: dict[str, tuple[str, NewRecord]], run: str, records: list[NewRecord]
) -> list[tuple[str, WriteOutcome]]:
    chosen: dict[str, NewRecord] = {}
    for record in sorted(records, key=lambda one: (one.source, one.data)):
        chosen.setdefault(record.key, record)
    told: dict[str, WriteOutcome] = {}
    for key, record in chosen.items():
        by, there = model.setdefault(key, (run, record)) if key != "/no" else (run, record)
        if (by, there) == (run, record):
            told[key] = WriteOutcome.WRITTEN
        else:
            told[key] = WriteOutcome.SAME if there.data == record.data else WriteOutcome.CONFLICT
    judged = set[str]()
    return [(one.key, one_outcome(one, chosen, told, judged)) for one in records]


def one_outcome(
    record: NewRecord, chosen: dict[str, NewRecord], told: dict[str, WriteOutcome], judged: set[str]
) -> WriteOutcome:
    if record.key == "/no":
        return WriteOutcome.REJECTED
    if record == chosen[record.key] and record.key not in judged:
        judged.add(record.key)
        return told[record.key]
    if record.data != chosen[record.key].data or told[record.key] is WriteOutcome.CONFLICT:
        return WriteOutcome.CONFLICT
    return WriteOutcome.SAME
