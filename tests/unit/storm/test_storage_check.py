import pytest

from kip30.driver.records import Version
from kip30.history.operations import Operation
from kip30_conformance.storm.finding import Conclusion
from kip30_conformance.storm.storage_check import linearizable, nothing_lost
from kip30_conformance.storm.storm_history import StormRecord

from .records import delete, final, record, write

KEY = "r0/k0"


def ended(held: tuple[str, Version] | None, *operations: Operation) -> StormRecord:
    return record(operations=operations, final=final(values={KEY: held}))


@pytest.mark.parametrize(
    "sound",
    [
        ended(("b", Version(2)), write(KEY, "a", 1), write(KEY, "b", 2, at=2)),
        ended(("b", Version(2)), write(KEY, "a", 1), write(KEY, "b", None, at=2)),
        ended(None, write(KEY, "a", 1), delete(KEY, at=2)),
    ],
    ids=["newest", "unanswered", "deleted"],
)
def test_nothing_lost(sound: StormRecord) -> None:
    assert nothing_lost(sound).conclusion is Conclusion.OK


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (ended(("a", Version(1)), write(KEY, "a", 1), write(KEY, "b", 2, at=2)), "is gone"),
        (ended(("b", Version(1)), write(KEY, "a", 1)), "holds 'b'"),
        (ended(("z", Version(9)), write(KEY, "a", 1)), "which no client wrote"),
        (ended(None, delete(KEY, at=0), write(KEY, "a", 1, at=2)), "no client deleted it"),
    ],
    ids=["older", "other", "unwritten", "gone"],
)
def test_lost(broken: StormRecord, why: str) -> None:
    assert why in nothing_lost(broken).violations[0]


def test_a_key_that_was_not_read_proves_nothing() -> None:
    unread = record(operations=[write(KEY, "a", 1)], final=final(values={}))
    assert nothing_lost(unread).conclusion is Conclusion.NO_EVIDENCE
    assert nothing_lost(record(final=None)).conclusion is Conclusion.NO_EVIDENCE


def test_linearizable() -> None:
    operations = [write(KEY, "a", 1, op="put"), write(KEY, "b", 2, at=1)]
    assert linearizable(record(operations=operations)).conclusion is Conclusion.OK


def test_two_puts_of_one_key() -> None:
    operations = [write(KEY, "a", 1, op="put"), write(KEY, "b", 2, at=1, op="put")]
    assert "no order" in linearizable(record(operations=operations)).violations[0]


def test_a_history_without_overlap_proves_nothing() -> None:
    operations = [write(KEY, "a", 1, op="put")]
    assert linearizable(record(operations=operations)).conclusion is Conclusion.NO_EVIDENCE
