import fcntl
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

import pytest

from kip30 import PluginLocator
from kip30.cli import _follow
from kip30.cli._exit_codes import Status
from kip30.runner import retried_call
from kip30_conformance.driver_faults import DriverFault, Effect
from kip30_conformance.polling import time_scale
from tests.embedded_faults import faults_of
from tests.unit.threads import no_threads

from .shell import PATIENCE_SECONDS, Shell, ended, eventually, line_of


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_watch_quietly(shell: Shell, number: signal.Signals) -> None:
    with ended(shell.start("kv", "watch", "a")) as watch:
        assert line_of(watch.stdout) == "-"
        watch.send_signal(number)
        out, err = watch.communicate(timeout=PATIENCE_SECONDS * time_scale())
    assert (watch.returncode, out, err) == (128 + number, b"", b"")


def test_a_watch_under_nohup_outlives_the_terminal(shell: Shell) -> None:
    ignoring = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    with ended(shell.start("kv", "watch", "a", **ignoring)) as watch:
        assert line_of(watch.stdout) == "-"
        watch.send_signal(signal.SIGHUP)
        version = shell("kv", "put", "a", "x").stdout.strip()
        assert line_of(watch.stdout) == f"{version}\tx"
        watch.terminate()


def test_an_idle_watch_ends_when_its_reader_closes_the_pipe(shell: Shell) -> None:
    with ended(shell.start("kv", "watch", "a")) as watch:
        assert line_of(watch.stdout) == "-"
        assert watch.stdout is not None
        watch.stdout.close()
        assert watch.wait(PATIENCE_SECONDS * time_scale()) == Status.OK
        assert watch.stderr is not None
        assert watch.stderr.read() == b""


def test_a_watch_started_without_a_reader_ends(shell: Shell) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    result = shell.finish("kv", "watch", "a", stdout=writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (Status.OK, b"")


def test_a_watch_into_a_file_goes_on(shell: Shell) -> None:
    file = shell.folder / "seen"
    with file.open("wb") as out, ended(shell.start("kv", "watch", "a", stdout=out)) as watch:
        eventually(lambda: file.read_text() == "-\n")
        version = shell("kv", "put", "a", "x").stdout.strip()
        eventually(lambda: file.read_text() == f"-\n{version}\tx\n")
        assert watch.poll() is None
        watch.terminate()


def test_a_watch_reports_a_value_from_creation_to_deletion(shell: Shell) -> None:
    with ended(shell.start("kv", "watch", "a", "--json")) as watch:
        seen = [json.loads(line_of(watch.stdout))]
        for words in (("put", "a", "1"), ("update", "a", "2"), ("delete", "a")):
            assert shell("kv", *words).exit_code == Status.OK
            seen.append(json.loads(line_of(watch.stdout)))
        watch.terminate()
    assert [one["value"] for one in seen] == [None, "1", "2", None]


def test_a_watch_of_keys_reports_created_and_deleted_keys(shell: Shell) -> None:
    with ended(shell.start("kv", "watch", "--keys", "n")) as watch:
        shell("kv", "put", "n/a", "")
        assert line_of(watch.stdout) == "+\tn/a"
        shell("kv", "delete", "n/a")
        assert line_of(watch.stdout) == "-\tn/a"
        watch.terminate()


def test_a_key_set_in_json_begins_with_all_keys(shell: Shell) -> None:
    shell("kv", "put", "n/a", "")
    with ended(shell.start("kv", "watch", "--keys", "n", "--json")) as watch:
        seen = json.loads(line_of(watch.stdout))
        watch.terminate()
    assert seen == {"namespace": "n", "added": ["n/a"], "removed": [], "keys": ["n/a"]}


class OverError(Exception):
    """Ends a watch of a test."""


def test_each_outage_is_printed_once(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(_follow, "say", said.append)
    monkeypatch.setattr(retried_call, "_PROBE_SECONDS", 0.01)
    shell.configure(plugin_operation_timeout_ms=200)
    with PluginLocator().startup(str(shell.properties)) as locator:
        faults = faults_of(locator.backend)

        def strike_reads(number: int) -> None:
            before = faults.counted()
            eventually(lambda: faults.counted() >= before + number)

        def interrupt_twice(tell: Callable[[str], object]) -> None:
            for _ in range(2):
                with faults.cut_off():
                    strike_reads(3)
                faults.add(DriverFault(operation="storage.read", effect=Effect.DELAY, times=2))
                strike_reads(2)
            tell("over")

        def listen(tell: Callable[[str], object]) -> None:
            threading.Thread(target=interrupt_twice, args=(tell,), daemon=True).start()

        def end(_event: str) -> None:
            raise OverError

        with pytest.raises(OverError):
            _follow.stay(locator, listen, end)
    assert len(said) == 2
    assert all(line.startswith("waiting for the store: ") for line in said)


def test_a_watch_survives_a_moment_without_a_thread_to_spare(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reports that as an outage, and notices later that its reader has closed the pipe."""
    said: list[str] = []
    monkeypatch.setattr(retried_call, "_PROBE_SECONDS", 0.01)
    reading, writing = os.pipe()
    os.close(reading)
    monkeypatch.setattr(_follow, "_STDOUT", writing)
    with PluginLocator().startup(str(shell.properties)) as locator, ExitStack() as shortage:
        shortage.enter_context(no_threads("kip30-"))

        def end_shortage(line: str) -> None:
            said.append(line)
            shortage.close()

        monkeypatch.setattr(_follow, "say", end_shortage)
        assert _follow.watch(locator, lambda _: None, print) == Status.OK
    os.close(writing)
    assert said == ["waiting for the store: the system has no thread to spare: nothing was asked"]


def is_blocked(pid: int) -> bool:
    """Return whether a process waits in a write into a pipe."""
    return "pipe_write" in Path(f"/proc/{pid}/wchan").read_text()


@pytest.fixture
def unread_pipe() -> Iterator[int]:
    """Give the writing end of a pipe that nothing reads, and that has room for one value."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    yield writing
    os.close(reading)
    os.close(writing)


def test_changes_are_merged_while_a_watch_is_not_read(shell: Shell) -> None:
    with (
        ended(shell.start("kv", "watch", "a")) as watch,
        PluginLocator().startup(str(shell.properties)) as locator,
    ):
        storage = locator.storage()
        assert watch.stdout is not None
        fcntl.fcntl(watch.stdout, fcntl.F_SETPIPE_SZ, 4096)
        assert line_of(watch.stdout) == "-"
        storage.set("a", "x" * 100_000)
        eventually(lambda: is_blocked(watch.pid))
        # Each change is seen before the next one: a watch merges those in quick succession anyway.
        seen = SimpleQueue[None]()
        locator.listener_registry().add_value_change_listener("a", lambda _: seen.put(None))
        for number in range(20):
            storage.set("a", str(number))
            seen.get(timeout=PATIENCE_SECONDS * time_scale())
        storage.set("a", "last")
        values = [line_of(watch.stdout).partition("\t")[2]]
        while values[-1] != "last":
            values.append(line_of(watch.stdout).partition("\t")[2])
        watch.terminate()
    assert len(values) <= 4  # the one that was not read, the one that waited, and the newest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_watch_whose_listener_waits(
    shell: Shell, number: signal.Signals, unread_pipe: int
) -> None:
    with (
        ended(shell.start("kv", "watch", "a", stdout=unread_pipe)) as watch,
        PluginLocator().startup(str(shell.properties)) as locator,
    ):
        for change in range(3):
            locator.storage().set("a", f"{change}{'x' * 100_000}")
        eventually(lambda: is_blocked(watch.pid))
        locator.storage().set("a", "y" * 100_000)
        watch.send_signal(number)
        assert watch.wait(PATIENCE_SECONDS * time_scale()) == 128 + number


def test_a_reader_that_stalls_and_closes_the_pipe_ends_a_watch_whose_listener_waits(
    shell: Shell,
) -> None:
    with (
        ended(shell.start("kv", "watch", "a")) as watch,
        PluginLocator().startup(str(shell.properties)) as locator,
    ):
        assert watch.stdout is not None
        fcntl.fcntl(watch.stdout, fcntl.F_SETPIPE_SZ, 4096)
        locator.storage().set("a", "x" * 100_000)
        eventually(lambda: is_blocked(watch.pid))
        locator.storage().set("a", "y" * 100_000)
        watch.stdout.close()
        assert watch.wait(PATIENCE_SECONDS * time_scale()) == Status.OK


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "words",
    [
        ("kv", "watch", "n/k"),
        ("kv", "watch", "n/k", "--json"),
        ("kv", "watch", "n", "--keys"),
        ("kv", "list", "n"),
        ("kv", "get", "n/k"),
    ],
    ids=" ".join,
)
def test_a_signal_ends_a_command_that_nobody_reads(
    shell: Shell, words: tuple[str, ...], number: signal.Signals, unread_pipe: int
) -> None:
    shell("kv", "put", "n/k", "-", stdin=b"x" * 100_000)
    for key in range(20):
        shell("kv", "put", f"n/{key}{'k' * 250}", "")
    with ended(shell.start(*words, stdout=unread_pipe)) as command:
        eventually(lambda: is_blocked(command.pid))
        command.send_signal(number)
        status = command.wait(PATIENCE_SECONDS * time_scale())
        assert command.stderr is not None
        assert (status, command.stderr.read()) == (128 + number, b"")
