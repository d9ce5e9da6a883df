"""I6, I8, I9, I10 and whether the faults happened."""

from dataclasses import replace
from typing import Any

import pytest

from kip30_conformance.storm.fault_evidence import faults_with_evidence
from kip30_conformance.storm.finding import Conclusion
from kip30_conformance.storm.leak_check import no_leak
from kip30_conformance.storm.liveness_check import calls_end, longest, outcomes, progress
from kip30_conformance.storm.membership_check import true_membership
from kip30_conformance.storm.names import FENCED_KEY
from kip30_conformance.storm.storm_history import InjectedFault, StormRecord
from kip30_conformance.storm.timing import Timing

from .records import NAMES, events, record, row, window, write

LIMIT = Timing().limit
BUSY = Timing().busy


def seen(called: float, at: float, *members: str) -> dict[str, Any]:
    return row("read members", at, called=called, seen=list(members))


def noted(*rows: dict[str, Any]) -> StormRecord:
    return record(journals={"c0.1": [*events(), *rows], "c1.1": events()})


def slow(seconds: float, stalled: float = 0.0) -> StormRecord:
    calls = row("calls", ended={"get": {"ok": 3}}, worst={"get": seconds})
    times = {"seconds": seconds, "stalled": stalled, "limit": LIMIT}
    return noted(row("slow", kind="get", outcome="unknown", **times), calls)


def test_membership_is_true_in_a_calm() -> None:
    judged = noted(seen(16, 17, *NAMES), seen(13, 14, "c0"), seen(14, 16, "c0"), seen(19, 21))
    assert true_membership(judged).conclusion is Conclusion.OK


@pytest.mark.parametrize("members", [["c0"], ["c0", "c1", "ghost"]])
def test_membership_is_wrong_in_a_calm(members: list[str]) -> None:
    assert true_membership(noted(seen(16, 17, *members))).conclusion is Conclusion.VIOLATION


def test_membership_that_was_not_read_proves_nothing() -> None:
    assert true_membership(noted()).conclusion is Conclusion.NO_EVIDENCE


def test_a_calm_in_which_no_client_read_the_group_proves_nothing() -> None:
    """After some fault all reads fail."""
    later = window()._replace(begin=20.0, end=22.0, well_from=25.0, until=30.0)
    found = true_membership(replace(noted(seen(16, 17, *NAMES)), windows=[window(), later]))
    assert (found.violations, found.missing) == ([], "the group was not read in 1 calms")


def test_a_group_that_no_member_left_proves_nothing() -> None:
    everyone = row("members event", now=[*NAMES], added=[*NAMES], removed=[])
    reads = [everyone, seen(16, 17, *NAMES)]
    found = true_membership(record(journals={"c0.1": reads, "c1.1": [everyone]}))
    assert (found.conclusion, found.violations) == (Conclusion.NO_EVIDENCE, [])


def test_calls_end() -> None:
    judged = slow(LIMIT + BUSY / 2)
    assert calls_end(judged).conclusion is Conclusion.OK
    assert outcomes(judged) == {"get": {"ok": 3}}
    assert longest(judged) == {"get": LIMIT + BUSY / 2}


def test_a_call_of_a_stopped_process_is_excused() -> None:
    assert calls_end(slow(LIMIT + 10, stalled=10)).conclusion is Conclusion.OK


@pytest.mark.parametrize(
    "broken",
    [
        slow(LIMIT + BUSY + 0.1),
        noted(row("stuck", kind="get", seconds=9.0, text="")),
        noted(row("broken", kind="get", text="TypeError")),
        record(deaths=["c0.1 ended with -11"]),
    ],
    ids=["late", "stuck", "broken", "dead"],
)
def test_a_call_does_not_end_as_it_must(broken: StormRecord) -> None:
    assert calls_end(broken).conclusion is Conclusion.VIOLATION


def test_no_call_proves_nothing() -> None:
    assert calls_end(record()).conclusion is Conclusion.NO_EVIDENCE


def acknowledged(*processes: str, at: int) -> StormRecord:
    one = write("r0/k0", "x", 1, at)
    operations = [replace(one, process=process) for process in processes]
    return record(operations=[*operations, write(FENCED_KEY, "1 x", 1, at)])


def test_progress() -> None:
    assert progress(acknowledged("c0.1 w", "c1.2 w", at=16)).conclusion is Conclusion.OK


def test_a_client_that_stands_still() -> None:
    assert "c1: nothing" in progress(acknowledged("c0.1 w", at=16)).violations[0]


def test_progress_in_a_calm_that_was_cut_short_is_not_judged() -> None:
    short = window()._replace(until=15.0 + Timing().look / 2)
    found = progress(replace(acknowledged("c0.1 w", at=16), windows=[short]))
    assert (found.violations, found.missing) == ([], "there was no calm")


def test_progress_that_comes_too_late() -> None:
    assert len(progress(acknowledged("c0.1 w", "c1.2 w", at=20)).violations) == 3


def held(threads: list[int], *, left: str = "") -> StormRecord:
    rows = [row("holds", threads=count, descriptors=9, bytes=2**20) for count in threads]
    behind = row("left behind", text=left)
    return record(journals={"c0.1": [*rows, behind], "c1.1": [behind]})


def test_no_leak() -> None:
    assert no_leak(held([20, 30] * 10)).conclusion is Conclusion.OK


def test_processes_that_were_not_watched_prove_nothing() -> None:
    found = no_leak(held([20] * 8))
    assert (found.violations, found.missing) == ([], "no process was watched for long enough")


def test_a_leak_after_closing() -> None:
    assert no_leak(held([20] * 20, left="thread x")).violations == [
        "c0.1: thread x",
        "c1.1: thread x",
    ]


def test_a_leak_while_running() -> None:
    assert no_leak(held(list(range(30)))).violations == ["c0.1: threads grew from 4.5 to 24.5"]


@pytest.mark.parametrize(("grown", "leaks"), [(8, False), (11, False), (12, True)])
def test_each_member_may_keep_three_threads_more_busy(grown: int, *, leaks: bool) -> None:
    sound = held([20] * 10 + [20 + grown] * 10)
    share = row("share", member="a", generation=1, items=[])
    rows = {"c0.1": [share, *sound.journals["c0.1"]], "c1.1": sound.journals["c1.1"]}
    assert bool(no_leak(replace(sound, journals=rows)).violations) is leaks


def test_a_client_that_did_not_close_proves_nothing() -> None:
    assert no_leak(record()).conclusion is Conclusion.NO_EVIDENCE


def test_faults_were_seen() -> None:
    assert faults_with_evidence(record()).conclusion is Conclusion.OK


def test_a_fault_that_was_never_seen_is_named() -> None:
    judged = record(windows=[window(InjectedFault("link cut", "c0", 2.0, ""))])
    assert faults_with_evidence(judged).missing == "never seen: link cut"
    assert faults_with_evidence(record(windows=[])).conclusion is Conclusion.NO_EVIDENCE
