"""I11 and I14."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kip30_conformance.storm.finding import Conclusion
from kip30_conformance.storm.names import ITEMS
from kip30_conformance.storm.storm_history import InjectedFault, StormRecord, WorkInterval
from kip30_conformance.storm.timing import Timing
from kip30_conformance.storm.work_check import one_worker, work_goes_on

from .records import record, row, window

BOOT_AHEAD = 1000.0
END = 12.0
CALM = window()._replace(end=END, well_from=END + Timing().grace, until=END + Timing().calm)


def worked(*work: WorkInterval) -> StormRecord:
    return record(work=work, windows=[CALM], boot_ahead=BOOT_AHEAD)


def all_items(first: float, last: float) -> list[WorkInterval]:
    """Return work on all items between two moments of the clock of the windows."""
    return [
        WorkInterval(item, BOOT_AHEAD + first, BOOT_AHEAD + last, "c0.1-0-a")
        for item in range(ITEMS)
    ]


def test_one_worker_after_the_other() -> None:
    found = one_worker(worked(WorkInterval(1, 1.0, 2.0, "a"), WorkInterval(1, 2.0, 3.0, "b")))
    assert found.conclusion is Conclusion.OK
    assert found.seen == "2 stretches of work by 2 members; 1 items moved"


def test_other_items_at_the_same_time() -> None:
    work = [
        WorkInterval(1, 1.0, 2.0, "a"),
        WorkInterval(2, 1.0, 2.0, "b"),
        WorkInterval(1, 2.0, 3.0, "b"),
    ]
    assert one_worker(worked(*work)).conclusion is Conclusion.OK


def test_one_member_in_two_stretches_that_overlap() -> None:
    work = [
        WorkInterval(1, 1.0, 3.0, "a"),
        WorkInterval(1, 2.0, 4.0, "a"),
        WorkInterval(1, 4.0, 5.0, "b"),
    ]
    assert one_worker(worked(*work)).conclusion is Conclusion.OK


@pytest.mark.parametrize(
    "work",
    [
        [WorkInterval(1, 1.0, 2.001, "a"), WorkInterval(1, 2.0, 3.0, "b")],
        [WorkInterval(1, 1.0, 9.0, "a"), WorkInterval(1, 2.0, 3.0, "b")],
        [
            WorkInterval(1, 1.0, 9.0, "a"),
            WorkInterval(1, 2.0, 3.0, "a"),
            WorkInterval(1, 5.0, 6.0, "b"),
        ],
    ],
    ids=["at the boundary", "within", "behind a short stretch"],
)
def test_two_members_at_one_item(work: Sequence[WorkInterval]) -> None:
    found = one_worker(worked(*work))
    assert found.conclusion is Conclusion.VIOLATION
    assert found.violations[0].startswith("item 1: ")
    assert "'a'" in found.violations[0]
    assert "'b'" in found.violations[0]


def test_two_members_of_one_process_at_one_item() -> None:
    work = [WorkInterval(1, 1.0, 2.5, "c0.1-0-a"), WorkInterval(1, 2.0, 3.0, "c0.1-1-b")]
    assert one_worker(worked(*work)).conclusion is Conclusion.VIOLATION


LOOK_UP = Timing().look_up
ENDED_AT = 5.0


def ended_ahead(
    last: float, *, called: float = 4.9, first: float = 0.0, begins: float = ENDED_AT + 0.01
) -> StormRecord:
    """The first member's session is ended in the store, and the next one begins right then."""
    ended = row("expired", ENDED_AT, called=called, observe_seconds=0.0, error="")
    work = [
        WorkInterval(1, BOOT_AHEAD + first, BOOT_AHEAD + last, "c0.1-0-a"),
        WorkInterval(1, BOOT_AHEAD + begins, BOOT_AHEAD + 9.0, "c1.1-0-b"),
    ]
    return replace(worked(*work), journals={"c0.1": [ended], "c1.1": []}, windows=[])


def test_a_session_ended_ahead_of_time_is_seen_as_late_as_observers_see_it() -> None:
    assert one_worker(ended_ahead(ENDED_AT + LOOK_UP - 0.01)).conclusion is Conclusion.OK


@pytest.mark.parametrize(
    "late",
    [
        ended_ahead(ENDED_AT + LOOK_UP + 0.01),
        ended_ahead(ENDED_AT + 0.1, called=ENDED_AT + 0.02),
        ended_ahead(ENDED_AT + 0.1, first=4.95),
        ended_ahead(ENDED_AT + 0.1, begins=4.8),
    ],
    ids=[
        "later than observers",
        "although it had not ended",
        "although it began after the deletion",
        "although the other one began before the deletion",
    ],
)
def test_two_members_although_one_session_was_ended_ahead_of_time(late: StormRecord) -> None:
    assert one_worker(late).conclusion is Conclusion.VIOLATION


def test_an_excused_stretch_hides_no_others() -> None:
    excused = ended_ahead(ENDED_AT + 0.2)
    third = WorkInterval(1, BOOT_AHEAD + 5.1, BOOT_AHEAD + 5.15, "c2.1-0-c")
    found = one_worker(replace(excused, work=[*excused.work, third]))
    assert len(found.violations) == 1
    assert "c1.1" in found.violations[0]
    assert "c2.1" in found.violations[0]


def test_an_item_that_never_moved_proves_nothing() -> None:
    found = one_worker(worked(WorkInterval(1, 1.0, 2.0, "a"), WorkInterval(2, 1.0, 2.0, "b")))
    assert (found.conclusion, found.missing) == (Conclusion.NO_EVIDENCE, "no item ever moved")


@pytest.mark.parametrize(
    "work",
    [
        all_items(CALM.well_from, CALM.until),
        all_items(0.0, CALM.well_from),
        all_items(CALM.until, CALM.until + 1),
    ],
    ids=["all the time", "up to the first moment", "from the last moment on"],
)
def test_work_goes_on(work: Sequence[WorkInterval]) -> None:
    assert work_goes_on(worked(*work)).conclusion is Conclusion.OK


@pytest.mark.parametrize(
    "work",
    [
        all_items(0.0, CALM.well_from - 0.001),
        all_items(CALM.until + 0.001, CALM.until + 1),
    ],
    ids=["ended too early", "began too late"],
)
def test_work_that_stands_still(work: Sequence[WorkInterval]) -> None:
    found = work_goes_on(worked(*work))
    assert found.conclusion is Conclusion.VIOLATION
    assert found.violations[0].startswith("item 0 was not worked on for 3.0 s")


def test_a_single_item_that_is_left_out() -> None:
    all_but_one = all_items(0.0, CALM.until)[:-1]
    violations = work_goes_on(worked(*all_but_one)).violations
    assert [text.split(" was")[0] for text in violations] == [f"item {ITEMS - 1}"]


def test_the_recovery_is_when_the_last_item_is_worked_on() -> None:
    work = [*all_items(0.0, END + 1)[:-1], *all_items(END + 2.5, CALM.until)]
    cut = InjectedFault("link cut", "c0", 2.0, "9 bytes lost")
    judged = replace(worked(*work), windows=[CALM._replace(faults=(cut,))])
    assert work_goes_on(judged).seen.endswith("2.50 s (median), 2.50 s (most)")


def test_a_calm_that_was_cut_short_proves_nothing() -> None:
    short = CALM._replace(until=CALM.until - 0.001)
    judged = replace(worked(*all_items(0.0, END)), windows=[short])
    assert work_goes_on(judged).conclusion is Conclusion.NO_EVIDENCE


def test_a_storm_without_members_proves_nothing() -> None:
    assert work_goes_on(worked()).conclusion is Conclusion.NO_EVIDENCE


def test_a_member_that_ended_for_good() -> None:
    ended = row("member ended", member="c0.1-0-a", error="GroupError()")
    judged = replace(worked(*all_items(0.0, CALM.until)), journals={"c0.1": [ended]})
    assert work_goes_on(judged).violations == ["c0.1-0-a ended: GroupError()"]
