import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from kip30.driver.records import Version
from kip30.errors import KeyExistsError, OutcomeUnknownError, UnavailableError, UsageError
from kip30.history.operations import Operation, Outcome, from_fields, to_fields
from kip30.history.recorder import HistoryRecorder, outcome_of, read_rows

CHILD = """
import sys
from pathlib import Path
from kip30.history.recorder import HistoryRecorder
recorder = HistoryRecorder(Path(sys.argv[1]))
with recorder.call("child", "put", "k", "before") as call:
    call.ok()
with recorder.call("child", "put", "k", "in the middle") as call:
    print("called", flush=True)
    sys.stdin.read()
"""


def test_an_answer_is_kept_with_its_times() -> None:
    recorder = HistoryRecorder()
    with recorder.call("p", "put", "k", "a") as call:
        call.ok(version=Version(3))
    (row,) = recorder.rows()
    assert (row.process, row.op, row.key, row.args) == ("p", "put", "k", ("a",))
    assert (row.outcome, row.version) == (Outcome.OK, Version(3))
    assert 0 < row.called_ns <= row.ends_ns


@pytest.mark.parametrize(
    ("error", "outcome", "result"),
    [
        (KeyExistsError("k"), Outcome.FAIL, "KeyExistsError"),
        (UnavailableError("down"), Outcome.FAIL, "UnavailableError"),
        (OutcomeUnknownError("cut"), Outcome.UNKNOWN, None),
        (ValueError("a defect"), Outcome.UNKNOWN, None),
        (KeyboardInterrupt(), Outcome.UNKNOWN, None),
    ],
)
def test_an_error_is_an_answer_and_is_passed_on(
    error: BaseException, outcome: Outcome, result: str | None
) -> None:
    recorder = HistoryRecorder()
    with pytest.raises(type(error)), recorder.call("p", "put", "k", "a"):
        raise error
    assert outcome_of(error) is outcome
    assert [(row.outcome, row.result) for row in recorder.rows()] == [(outcome, result)]


def test_a_call_that_never_answers_is_unknown() -> None:
    recorder = HistoryRecorder()
    with recorder.call("p", "put", "k", "a"):
        (running,) = recorder.rows()
    (ended,) = recorder.rows()
    assert running == ended
    assert not ended.answered


def test_the_first_answer_stands() -> None:
    recorder = HistoryRecorder()
    with recorder.call("p", "get", "k") as call:
        call.fail("UnavailableError")
        with pytest.raises(UsageError, match="an answer already"):
            call.ok("a")
    assert [row.result for row in recorder.rows()] == ["UnavailableError"]


def test_threads_lose_nothing(tmp_path: Path) -> None:
    def work(process: int) -> None:
        for number in range(200):
            with recorder.call(str(process), "put", "k", f"{process}-{number}") as call:
                call.ok(version=Version(number))

    with closing(HistoryRecorder(tmp_path)) as recorder, ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len({row.args for row in recorder.rows()}) == 1600
    assert sorted(read_rows(tmp_path), key=str) == sorted(recorder.rows(), key=str)


def test_a_killed_process_leaves_what_it_had_called(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    with (
        closing(HistoryRecorder(tmp_path)) as recorder,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child,
    ):
        assert child.stdout is not None
        assert child.stdout.readline() == "called\n"
        with recorder.call("parent", "get", "k") as call:
            os.kill(child.pid, signal.SIGKILL)
            call.ok("before")
    rows = {row.args: row for row in read_rows(tmp_path)}
    assert rows["before",].acknowledged
    assert not rows["in the middle",].answered
    assert rows["in the middle",].called_ns < rows[()].ends_ns


def test_a_line_that_was_being_written_at_the_kill_is_no_row(tmp_path: Path) -> None:
    with (
        closing(HistoryRecorder(tmp_path)) as recorder,
        recorder.call("p", "put", "k", "a") as call,
    ):
        call.fail("KeyExistsError")
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes() + b'{"number": 1, "key": "k", "pro')
    assert read_rows(tmp_path) == recorder.rows()


def test_fields_and_back() -> None:
    row = Operation(
        key="k", process="p", op="compare_and_set", called_ns=1, returned_ns=2,
        outcome=Outcome.OK, args=(Version(1, 2), ("a", (1, None))), version=Version(3, 4),
    )  # fmt: skip
    assert from_fields(to_fields(row)) == row


@pytest.mark.parametrize("returned_ns", [None, 0])
def test_an_answer_needs_a_time_after_its_call(returned_ns: int | None) -> None:
    with pytest.raises(ValueError, match="returned"):
        Operation(
            key="k", process="p", op="get", called_ns=1, returned_ns=returned_ns,
            outcome=Outcome.OK,
        )  # fmt: skip
