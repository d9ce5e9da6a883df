"""I12."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kip30.coordinator.keys import GroupKeys
from kip30.driver.records import Version
from kip30.history.operations import Operation, Outcome
from kip30_conformance.storm.finding import Conclusion
from kip30_conformance.storm.guard_check import guarded_writes
from kip30_conformance.storm.names import WORK_GROUP
from kip30_conformance.storm.storm_history import StormRecord

from .records import final, record, refusal, write

KEY = GroupKeys(WORK_GROUP).data("7")
REFUSED = refusal(KEY, "IllegalGenerationError", op="set")


def guarded(since: int, member: str, version: int | None, at: int = 0) -> Operation:
    return write(KEY, f"{since} {member} n{version}", version, at, op="set")


def read(value: str | None, version: int | None, at: int) -> Operation:
    return Operation(
        key=KEY,
        process="c1.1",
        op="get",
        called_ns=at * 10**9,
        returned_ns=(at + 1) * 10**9,
        outcome=Outcome.OK,
        result=value,
        version=None if version is None else Version(version),
    )


def judged(*operations: Operation) -> StormRecord:
    return record(operations=[*operations, REFUSED])


SOUND = [guarded(3, "a", 1), guarded(3, "a", 2, at=2), guarded(4, "b", 3, at=4)]


@pytest.mark.parametrize(
    "operations",
    [
        SOUND,
        [guarded(3, "a", 1), guarded(5, "a", 2), guarded(6, "b", 3)],
        [*SOUND, read("4 b n3", 3, at=5)],
        [*SOUND, read("3 a n2", 2, at=4), read(None, None, at=0)],
        [*SOUND, guarded(3, "a", None, at=6)],
    ],
    ids=["moved", "its own later share", "read", "read while written", "old, and not applied"],
)
def test_guarded_writes_in_order(operations: Sequence[Operation]) -> None:
    found = guarded_writes(judged(*operations))
    assert (found.conclusion, found.violations) == (Conclusion.OK, [])


@pytest.mark.parametrize(
    "operations",
    [
        [guarded(4, "b", 1), guarded(3, "a", 2, at=1)],
        [guarded(4, "b", 1), guarded(4, "a", 2, at=1)],
        [guarded(4, "b", 1), guarded(3, "b", 2, at=1)],
        [guarded(3, "a", 1), guarded(4, "b", 2, at=1), guarded(3, "a", 3, at=2)],
        [guarded(4, "b", 1), guarded(3, "a", None, at=1), read("3 a nNone", 2, at=3)],
    ],
    ids=["an older share", "the same generation", "its own older share", "again", "not answered"],
)
def test_a_write_that_was_applied_late(operations: Sequence[Operation]) -> None:
    found = guarded_writes(judged(*operations))
    assert found.conclusion is Conclusion.VIOLATION
    assert len(found.violations) == 1
    assert "was applied after" in found.violations[0]
    assert KEY in found.violations[0]


def test_a_late_write_hides_no_other() -> None:
    late = [guarded(5, "b", 1), guarded(3, "a", 2, at=1), guarded(4, "c", 3, at=2)]
    assert len(guarded_writes(judged(*late)).violations) == 2


def test_a_late_write_that_only_the_end_shows() -> None:
    late = guarded(3, "a", None, at=6)
    values = {KEY: (late.args[-1], Version(4))}
    found = guarded_writes(replace(judged(*SOUND, late), final=final(values=values)))
    assert "'3 a nNone'" in found.violations[0]


@pytest.mark.parametrize(
    "operations",
    [
        [*SOUND, read("3 a n2", 2, at=6)],
        [*SOUND, read(None, None, at=6)],
        [*SOUND, replace(guarded(4, "b", 3, at=6), args=("4 b n3",))],
    ],
    ids=["an older one is read", "none is read", "a write takes no new version"],
)
def test_an_acknowledged_write_that_is_lost(operations: Sequence[Operation]) -> None:
    found = guarded_writes(judged(*operations))
    assert found.conclusion is Conclusion.VIOLATION
    assert "was known" in found.violations[0]


def test_the_moment_from_which_a_write_must_be_read() -> None:
    """The last write returns at the second 5: a read may miss it if called then, but not later."""
    missed = read("3 a n2", 2, at=5)
    assert guarded_writes(judged(*SOUND, missed)).violations == []
    later = replace(missed, called_ns=missed.called_ns + 1)
    assert len(guarded_writes(judged(*SOUND, later)).violations) == 1


def test_two_values_at_one_version() -> None:
    found = guarded_writes(judged(guarded(3, "a", 1), replace(SOUND[0], args=("3 a other",))))
    assert "'3 a n1' and '3 a other' at" in found.violations[0]


def test_untested_guards_prove_nothing() -> None:
    unmoved = guarded_writes(judged(guarded(3, "a", 1)))
    assert unmoved.missing == "no item with a guarded write ever moved"
    unrefused = guarded_writes(record(operations=SOUND))
    assert (unrefused.conclusion, unrefused.missing) == (
        Conclusion.NO_EVIDENCE,
        "none was refused",
    )
