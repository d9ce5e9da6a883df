"""Replacing and deleting in bulk: for a feed, any version; for a repair, one version."""

from collections.abc import Callable

import pytest

from kip30 import BYTES, PluginLocator, UnsupportedError, Version
from kip30.driver import Capability
from kip30.driver.records import Condition
from kip30.names import parse_key
from kip30.pipeline.write.applier import Applied, Applier, NewRecord, Replacement, WriteOutcome
from kip30_conformance.driver_faults import wrap
from tests.unit.core.trouble import faults

from .requests import Requests

ANY = Condition.ANY


def replace(client: PluginLocator, *changes: Replacement, run: str = "r") -> list[Applied]:
    return Applier(client.backend, run, seconds=10).replace(changes)


def outcomes(applied: list[Applied]) -> list[WriteOutcome]:
    return [one.outcome for one in applied]


def data(client: PluginLocator, key: str) -> bytes | None:
    entry = client.backend.storage.read([parse_key(key)]).result()[0]
    return None if entry is None else entry.data


FEED = [
    Replacement("new", b"1", "s1", ANY),
    Replacement("old", b"2", "s2", ANY),
    Replacement("equal", b"e", "s3", ANY),
    Replacement("gone", None, "s4", ANY),
    Replacement("missing", None, "s5", ANY),
    Replacement("/no", b"", "s6", ANY),
]


@pytest.fixture
def filled(client: PluginLocator) -> PluginLocator:
    client.storage(BYTES).put_many({"old": b"1", "equal": b"e", "gone": b"g"})
    return client


def test_a_feed_replaces_whatever_is_there(filled: PluginLocator) -> None:
    applied = replace(filled, *FEED)
    assert [one.outcome.value for one in applied] == [
        *("written", "written", "same", "written", "same", "rejected")
    ]
    states = [data(filled, change.key) for change in FEED[:-1]]
    assert states == [b"1", b"2", b"e", None, None]


def test_only_what_the_pipeline_wrote_is_replaced(filled: PluginLocator) -> None:
    moved = [NewRecord("own", b"1", "s0"), NewRecord("own/gone", b"1", "s0")]
    Applier(filled.backend, "a migration", seconds=10).create(moved)
    changes = [
        *FEED[:-1],
        Replacement("own", b"2", "s6", ANY),
        Replacement("own/gone", None, "s7", ANY),
    ]
    for _ in range(2):
        applied = Applier(filled.backend, "r", seconds=10).replace(changes, only_own=True)
        found = {one.key: one.outcome.value for one in applied if one.key != "own/gone"}
        assert found == {
            "new": "written",
            "old": "conflict",
            "equal": "same",
            "gone": "conflict",
            "missing": "same",
            "own": "written",
        }
    states = [data(filled, change.key) for change in changes]
    assert states == [b"1", b"1", b"e", b"g", None, b"2", None]


def test_a_program_that_writes_between_look_and_write_is_not_overwritten(
    client: PluginLocator,
) -> None:
    feed = Applier(client.backend, "r", seconds=10)
    feed.replace([Replacement("k", b"1", "s1", ANY)], only_own=True)

    def after_a_program(real: Callable[..., object], writes: object) -> object:
        client.storage(BYTES).set("k", b"a program's")
        return real(writes)

    wrap(client.backend.storage, "write_many", after_a_program)
    (applied,) = feed.replace([Replacement("k", b"2", "s2", ANY)], only_own=True)
    assert applied.outcome is WriteOutcome.CONFLICT
    assert applied.detail.startswith("a program wrote the existing record, at version ")
    assert data(client, "k") == b"a program's"


def test_a_batch_that_is_replayed_writes_nothing(filled: PluginLocator, requests: Requests) -> None:
    first = replace(filled, *FEED)
    requests.counted()
    again = replace(filled, *FEED)
    assert requests.counted() == ([5], [])
    assert outcomes(again[:3]) == outcomes(first[:3])
    assert again[3].outcome is WriteOutcome.SAME  # of a deletion nothing is left to know it by


def test_existing_records_are_read_in_parts(client: PluginLocator, requests: Requests) -> None:
    """One response has all values of a part: many large ones would not arrive in time."""
    changes = [Replacement(f"k{number}", None, "s", ANY) for number in range(700)]
    assert set(outcomes(replace(client, *changes))) == {WriteOutcome.SAME}
    reads, _ = requests.counted()
    assert sum(reads) == 700
    assert max(reads) <= 200


def test_no_further_part_is_read_once_the_store_does_not_answer(
    client: PluginLocator, requests: Requests
) -> None:
    changes = [Replacement(f"k{number}", None, "s", ANY) for number in range(700)]
    writer = Applier(client.backend, "r", seconds=10)
    writer.replace(changes[:1])
    faults(client).fail("storage.read", times=1)
    requests.counted()
    assert set(outcomes(writer.replace(changes))) == {WriteOutcome.UNKNOWN}
    assert requests.counted() == ([200], [])


def test_the_next_batch_replaces_the_one_before(filled: PluginLocator) -> None:
    replace(filled, *FEED)
    applied = replace(filled, Replacement("new", b"2", "s7", ANY))
    assert outcomes(applied) == [WriteOutcome.WRITTEN]
    assert data(filled, "new") == b"2"


def test_the_last_change_of_a_key_counts(client: PluginLocator, requests: Requests) -> None:
    changes = [Replacement("k", value, str(at), ANY) for at, value in enumerate((b"1", None, b"3"))]
    for _ in range(2):
        applied = replace(client, *changes)
        assert outcomes(applied) == [WriteOutcome.SAME, WriteOutcome.SAME, WriteOutcome.WRITTEN]
        assert "later" in applied[0].detail
    assert requests.counted() == ([1, 1], [1])
    assert data(client, "k") == b"3"


def test_the_last_of_two_repairs_counts_and_the_other_conflicts(client: PluginLocator) -> None:
    version = client.storage(BYTES).put("k", b"0")
    changes = [Replacement("k", value, "1", version) for value in (b"1", b"2")]
    assert outcomes(replace(client, *changes)) == [WriteOutcome.CONFLICT, WriteOutcome.WRITTEN]
    assert data(client, "k") == b"2"


def test_all_changes_of_a_key_share_the_outcome_of_the_last(client: PluginLocator) -> None:
    faults(client).fail("storage.write_many")
    changes = [Replacement("k", value, "1", ANY) for value in (b"1", b"2")]
    assert outcomes(replace(client, *changes)) == [WriteOutcome.UNKNOWN] * 2


Repair = Callable[[Version], Replacement]

REPAIRS: dict[str, tuple[Repair, WriteOutcome, bytes | None]] = {
    "at its version": (lambda at: Replacement("k", b"new", "s", at), WriteOutcome.WRITTEN, b"new"),
    "deleted": (lambda at: Replacement("k", None, "s", at), WriteOutcome.WRITTEN, None),
    "equal": (lambda _: Replacement("k", b"old", "s", Version(999)), WriteOutcome.SAME, b"old"),
    "changed": (
        lambda _: Replacement("k", b"new", "s", Version(999)),
        WriteOutcome.CONFLICT,
        b"old",
    ),
    "not deleted": (
        lambda _: Replacement("k", None, "s", Version(999)),
        WriteOutcome.CONFLICT,
        b"old",
    ),
    "missing": (lambda at: Replacement("m", b"new", "s", at), WriteOutcome.CONFLICT, b"old"),
    "gone": (lambda at: Replacement("m", None, "s", at), WriteOutcome.SAME, b"old"),
    "created": (
        lambda _: Replacement("m", b"", "s", Condition.ABSENT),
        WriteOutcome.WRITTEN,
        b"old",
    ),
    "not there": (
        lambda _: Replacement("m", b"", "s", Condition.PRESENT),
        WriteOutcome.CONFLICT,
        b"old",
    ),
}


@pytest.mark.parametrize("case", REPAIRS)
@pytest.mark.parametrize("looks_first", [False, True])
def test_a_repair_changes_the_expected_version_alone(
    client: PluginLocator, case: str, *, looks_first: bool
) -> None:
    version = client.storage(BYTES).put("k", b"old")
    change, outcome, left = REPAIRS[case]
    writer = Applier(client.backend, "r", seconds=10)
    if looks_first:  # for the batch before met a key
        writer.replace([Replacement("k", b"old", "before", Version(999))])
    assert outcomes(writer.replace([change(version)])) == [outcome]
    assert data(client, "k") == left


@pytest.mark.parametrize("looks_first", [False, True])
def test_a_repair_that_is_repeated_is_written_once(
    client: PluginLocator, *, looks_first: bool
) -> None:
    version = client.storage(BYTES).put("k", b"old")
    change = Replacement("k", b"new", "s", version)
    first = replace(client, change)
    writer = Applier(client.backend, "r", seconds=10)
    if looks_first:
        writer.replace([Replacement("k", b"x", "before", Version(999))])
    assert writer.replace([change]) == first
    assert outcomes(replace(client, change, run="other")) == [WriteOutcome.SAME]


def test_a_lost_repair_is_settled(client: PluginLocator) -> None:
    version = client.storage(BYTES).put("k", b"old")
    faults(client).lose_answers("storage.write_many")
    applied = replace(client, Replacement("k", b"new", "s", version))
    assert outcomes(applied) == [WriteOutcome.WRITTEN]


def test_a_repair_that_did_not_arrive_is_sent_again(client: PluginLocator) -> None:
    version = client.storage(BYTES).put("k", b"old")
    faults(client).arrive_late("storage.write_many", 60)
    applied = replace(client, Replacement("k", b"new", "s", version))
    assert outcomes(applied) == [WriteOutcome.WRITTEN]
    assert data(client, "k") == b"new"


def test_a_lost_deletion_is_unknown_and_then_the_same(client: PluginLocator) -> None:
    version = client.storage(BYTES).put("k", b"old")
    faults(client).lose_answers("storage.write_many")
    change = Replacement("k", None, "s", version)
    assert outcomes(replace(client, change)) == [WriteOutcome.UNKNOWN]
    assert outcomes(replace(client, change)) == [WriteOutcome.SAME]


def test_a_version_needs_a_store_that_compares(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client.backend, "capabilities", frozenset[Capability]())
    with pytest.raises(UnsupportedError, match="compare-and-set"):
        replace(client, Replacement("k", b"", "s", Version(1)))
    assert outcomes(replace(client, Replacement("k", b"", "s", ANY))) == [WriteOutcome.WRITTEN]
