"""Lines on standard error block no command that holds a lease."""

import os
import signal
import threading
from pathlib import Path
from queue import SimpleQueue

import psutil
import pytest
from typing_extensions import override

from kip30.cli._exit_codes import Status
from kip30.cli._stderr import LineQueue
from kip30_conformance.polling import throughout, time_scale
from tests.unit.children import run_in_child
from tests.unit.threads import no_threads

from .full_pipe import FullPipe, full_pipe
from .shell import PATIENCE_SECONDS, SESSION_SECONDS, Shell, ended, eventually, line_of

MOST_LINES = 1000
STAY = "echo ready; exec sleep 600"
NOISE = "echo ready; exec yes zzz >&2"
ITEM = 'echo $$ > "pid-{}"; exec sleep 600'


@pytest.mark.parametrize(
    "words", [("run", "--service=s"), ("coordinate", "--group=s", "--shards=1")]
)
@pytest.mark.parametrize("script", [STAY, NOISE], ids=["silent", "noisy"])
def test_a_stalled_reader_of_stderr_delays_no_hand_over(
    shell: Shell, words: tuple[str, ...], script: str
) -> None:
    with (
        full_pipe() as pipe,
        ended(shell.start(*words, "sh", "-c", script, stderr=pipe.writing)) as runner,
    ):
        assert line_of(runner.stdout) == "ready"
        runner.terminate()
        assert runner.wait(PATIENCE_SECONDS * time_scale()) == 128 + signal.SIGTERM
        assert shell.finish(*words, "--wait=10", "echo", "next").stdout == b"next\n"


def test_a_stalled_reader_of_stderr_hides_no_signal_from_a_waiting_runner(shell: Shell) -> None:
    with (
        full_pipe() as pipe,
        ended(shell.start("run", "--service=s", "sh", "-c", STAY)) as leader,
    ):
        assert line_of(leader.stdout) == "ready"
        words = ("run", "--service=s", "--wait=0.5", "true")
        with ended(shell.start(*words, stderr=pipe.writing)) as second:
            assert second.wait(PATIENCE_SECONDS * time_scale()) == Status.NOT_ELECTED
        leader.terminate()


def test_the_end_of_an_item_that_cannot_be_reported_leaves_other_commands_running(
    shell: Shell,
) -> None:
    words = ("coordinate", "--group=g", "--shards=3", "--each", "sh", "-c", ITEM)
    pipe = FullPipe()
    with ended(shell.start(*words, stderr=pipe.writing)) as runner:
        eventually(lambda: len(item_pids(shell.folder)) == 3)
        pipe.fill()
        first, *others = item_pids(shell.folder)
        first.kill()
        eventually(lambda: not first.is_running())
        throughout(
            lambda: all(one.is_running() for one in others),
            seconds=1.5 * SESSION_SECONDS * time_scale(),
        )
        runner.terminate()
        assert runner.wait(PATIENCE_SECONDS * time_scale()) == 128 + signal.SIGTERM
    os.close(pipe.reading)
    os.close(pipe.writing)


def item_pids(folder: Path) -> list[psutil.Process]:
    texts = [file.read_text() for file in sorted(folder.glob("pid-*"))]
    return [psutil.Process(int(text)) for text in texts if text.endswith("\n")]


def test_a_stalled_reader_of_stderr_keeps_no_member_in_its_group(shell: Shell) -> None:
    with (
        full_pipe() as pipe,
        ended(shell.start("group", "join", "g", "--id=m", stderr=pipe.writing)) as member,
    ):
        eventually(lambda: shell("group", "list", "g").stdout == "m\t\n")
        member.terminate()
        assert member.wait(PATIENCE_SECONDS * time_scale()) == 128 + signal.SIGTERM
        assert shell("group", "list", "g").stdout == ""


def test_an_error_follows_the_lines_before_it(shell: Shell) -> None:
    result = shell.finish("run", "--service=s", "--", "sh", "-c", "exit 3")
    told = result.stderr.decode().splitlines()
    assert [line.split()[1] for line in told] == ["waiting", "leading", "epoch"]
    missing = shell.finish("coordinate", "--group=g", "--items-key=k", "true")
    told = missing.stderr.decode().splitlines()
    assert told[0] == "kip30: waiting for a share of g"
    assert told[-1].startswith("kip30: there is no list of items in key 'k'")


def test_lines_are_written_in_order_and_those_dropped_are_counted() -> None:
    with full_pipe() as pipe:
        lines = LineQueue(os.dup(pipe.writing), "utf-8")
        for number in range(2 * MOST_LINES):
            lines.put(f"line {number} é")
        os.set_blocking(pipe.reading, False)
        seen = b""

        def reads(text: str) -> bool:
            nonlocal seen
            try:
                seen += os.read(pipe.reading, 1 << 16)
            except BlockingIOError:
                return False
            return text.encode() in seen

        eventually(lambda: reads(f"line {MOST_LINES - 1} "))
        lines.put("the next")
        lines.close()
        eventually(lambda: reads("the next\n"))
    *told, notice, last = seen.decode().lstrip("z").splitlines()
    assert told == [f"line {number} é" for number in range(len(told))]
    dropped = 2 * MOST_LINES - len(told)
    assert (notice, last) == (f"kip30: lines that were dropped here: {dropped}", "the next")
    assert len(told) in {MOST_LINES, MOST_LINES + 1}  # the writer may hold one


def test_lines_that_were_dropped_last_are_counted_at_the_end() -> None:
    reading, writing = os.pipe()
    lines = LineQueue(writing, "utf-8")
    with no_threads():
        for number in range(MOST_LINES + 5):
            lines.put(str(number))
        lines.close()
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read().decode().splitlines()
    assert told[-2:] == [str(MOST_LINES - 1), "kip30: lines that were dropped here: 5"]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_writes_its_own_lines() -> None:
    reading, writing = os.pipe()
    lines = LineQueue(writing, "utf-8")
    lines.put("parent")
    assert os.read(reading, 100) == b"parent\n"

    def write() -> bool:
        lines.put("child")
        lines.close()
        return True

    assert run_in_child(write) == 0
    assert os.read(reading, 100) == b"child\n"
    lines.close()
    os.close(reading)
    os.close(writing)


class EndingQueue(SimpleQueue[str | None]):
    """Puts the order to end, and returns when the thread that it is for has ended."""

    def __init__(self, lines: LineQueue) -> None:
        self._ended = lines

    @override
    def put(self, item: str | None, block: bool = True, timeout: float | None = None) -> None:
        super().put(item, block, timeout)
        if item is None:
            self._ended._writer.join()


def test_a_writer_that_ends_at_once_does_not_block_the_close(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        lines = LineQueue(file.fileno(), "utf-8")
        lines._lines = EndingQueue(lines)
        lines.put("one")
        closing = threading.Thread(target=lines.close, daemon=True)
        closing.start()
        closing.join(PATIENCE_SECONDS * time_scale())
        assert not closing.is_alive()
    assert (tmp_path / "file").read_bytes() == b"one\n"
