"""`install-servers` with recipes made of local commands: once, whole or not at all."""

import fcntl
import json
import re
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from kip30_conformance.polling import time_scale

from .workshop import PATIENCE, Workshop, await_line, eventually, is_running


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    workshop = Workshop(tmp_path)
    workshop.write_recipe("zoo")
    return workshop


def assert_whole(workshop: Workshop, name: str = "zoo") -> None:
    folder = workshop.folder(name)
    assert (folder / "bin" / "server").read_text() == "whole\n"
    assert not folder.with_name(f"{folder.name}.partial").exists()


def test_installs_and_leaves_a_receipt(workshop: Workshop) -> None:
    result = workshop.install("zoo")
    assert result.returncode == 0
    assert result.stdout == f"{workshop.folder('zoo')}\n"
    assert json.loads((workshop.folder("zoo") / "RECEIPT.json").read_text()) == {
        "name": "zoo",
        "version": "1.2",
        "start": ["{folder}/bin/server", "--quiet"],
    }
    assert_whole(workshop)


def test_every_line_of_progress_has_the_server_and_the_seconds(workshop: Workshop) -> None:
    lines = workshop.install("zoo").stderr.splitlines()
    assert len(lines) == 2
    assert all(re.fullmatch(r"zoo-1\.2: .+ \[\d+\.\d s\]", line) for line in lines)


def test_a_second_run_does_nothing(workshop: Workshop) -> None:
    first = workshop.install("zoo")
    before = workshop.folder("zoo").stat()
    second = workshop.install("zoo")
    assert (second.returncode, second.stdout) == (0, first.stdout)
    assert workshop.folder("zoo").stat().st_mtime_ns == before.st_mtime_ns
    assert len(workshop.made_by()) == 1


def test_with_no_name_all_are_installed_and_a_name_twice_is_one(workshop: Workshop) -> None:
    workshop.write_recipe("ark")
    assert workshop.install("zoo", "zoo").stdout.splitlines() == [str(workshop.folder("zoo"))]
    assert set(workshop.install().stdout.splitlines()) == {
        str(workshop.folder("ark")),
        str(workshop.folder("zoo")),
    }
    assert len(workshop.made_by()) == 2


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["zoe"], "there is no server 'zoe'; did you mean zoo? known: zoo"),
        (["zoo", "quite-else"], "there is no server 'quite-else'; known: zoo"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["--recipes", "nowhere", "zoo"], "there is no recipe in nowhere"),
    ],
)
def test_a_wrong_call_is_refused(workshop: Workshop, words: list[str], complaint: str) -> None:
    result = workshop.install(*words)
    assert result.returncode == 2
    assert complaint in result.stderr.splitlines()[-1]
    assert not workshop.cache.exists()


@pytest.mark.parametrize("words", [["zoe"], ["--recipes", "nowhere"]])
def test_a_refusal_is_one_line(workshop: Workshop, words: list[str]) -> None:
    assert len(workshop.install(*words).stderr.splitlines()) == 1


def test_a_missing_program_is_named_with_what_to_install(workshop: Workshop) -> None:
    workshop.write_recipe("ark", needs="no-such-program")
    result = workshop.install("ark")
    assert result.returncode == 1
    assert result.stderr == (
        "install-servers: ark-1.2: "
        "no-such-program is missing, install the package of no-such-program\n"
    )


def test_a_failure_is_one_line_and_the_others_go_on(workshop: Workshop) -> None:
    workshop.write_recipe("ark", "echo starting; echo 'ERROR: no wood'; echo see help; exit 3")
    result = workshop.install("ark", "zoo")
    log = workshop.cache / "ark-1.2.partial" / "make.log"
    assert result.returncode == 1
    assert (
        f"install-servers: ark-1.2: sh ended with status 3: ERROR: no wood (all of it: {log})\n"
        in result.stderr
    )
    assert log.read_text() == "starting\nERROR: no wood\nsee help\n"
    assert result.stdout == f"{workshop.folder('zoo')}\n"


def test_a_cache_that_cannot_be_written_is_one_line(workshop: Workshop) -> None:
    workshop.cache.parent.write_text("a file, not a folder")
    result = workshop.install("zoo")
    assert result.returncode == 1
    assert str(workshop.cache) in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_lock_that_another_process_holds_is_waited_for(workshop: Workshop) -> None:
    workshop.cache.mkdir(parents=True)
    with (workshop.cache / "zoo-1.2.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with workshop.installing("zoo") as process:
            await_line(process, "another process")
            assert workshop.made_by() == []
            fcntl.flock(lock, fcntl.LOCK_UN)
            assert process.wait(PATIENCE * time_scale()) == 0
    assert_whole(workshop)


def test_of_many_at_once_one_makes_it(workshop: Workshop) -> None:
    workshop.close_gate()
    with ExitStack() as stack:
        processes = [stack.enter_context(workshop.installing("zoo")) for _ in range(5)]
        eventually(lambda: len(workshop.made_by()) == 1)
        workshop.open_gate()
        assert [process.wait(PATIENCE * time_scale()) for process in processes] == [0] * 5
    assert len(workshop.made_by()) == 1
    assert_whole(workshop)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_ends_what_it_started_and_can_be_run_again(
    workshop: Workshop, number: signal.Signals
) -> None:
    workshop.close_gate()
    with workshop.installing("zoo") as process:
        eventually(lambda: len(workshop.made_by()) == 1)
        process.send_signal(number)
        assert process.wait(PATIENCE * time_scale()) == 128 + number
    assert not is_running(workshop.made_by()[0])
    assert not workshop.folder("zoo").exists()
    workshop.gate.unlink()
    workshop.gate.touch()
    assert workshop.install("zoo").returncode == 0
    assert_whole(workshop)


@pytest.mark.fault
def test_killed_its_commands_still_hold_the_lock(workshop: Workshop) -> None:
    workshop.close_gate()
    with workshop.installing("zoo") as killed:
        eventually(lambda: len(workshop.made_by()) == 1)
        killed.kill()
        killed.wait(PATIENCE * time_scale())
    orphan = workshop.made_by()[0]
    with workshop.installing("zoo") as process:
        await_line(process, "another process")
        assert is_running(orphan)
        workshop.open_gate()
        eventually(lambda: len(workshop.made_by()) == 2)
        assert not is_running(orphan)
        workshop.open_gate()
        assert process.wait(PATIENCE * time_scale()) == 0
    assert_whole(workshop)


@pytest.mark.parametrize("left", ["zoo-1.2.partial", "zoo-1.2"])
def test_an_incomplete_installation_is_replaced(workshop: Workshop, left: str) -> None:
    (workshop.cache / left / "bin").mkdir(parents=True)
    (workshop.cache / left / "rubbish").touch()
    assert workshop.install("zoo").returncode == 0
    assert not (workshop.folder("zoo") / "rubbish").exists()
    assert_whole(workshop)
