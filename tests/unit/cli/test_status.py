"""What there is in a store and what wants attention: `kip30 status`."""

import fcntl
import json
import os
import signal
import sqlite3
import struct
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kip30 import PluginLocator
from kip30.cli import status
from kip30.cli._exit_codes import Status
from kip30.cli._schema import SCHEMA
from kip30.codecs import BYTES
from kip30.operations import overview
from kip30.runtime.directives import Directives, ElectionPause, directives_key, encode_directives
from kip30_conformance.polling import is_readable, time_scale
from tests.unit.unreadable_leader import add_unreadable_leader

from .shell import PATIENCE_SECONDS, SESSION_SECONDS, Shell, ended, line_of
from .test_doctor import use
from .test_kv_bulk import damage
from .test_output import expect_fields, plain_environment

LINE = "kip30.candidates/vacant"
AWAY = """
from kip30.errors import UnavailableError
from kip30_backends.embedded import EmbeddedBackend

class Away(EmbeddedBackend):
    name = "away"
    @classmethod
    def scanner(cls, context, settings, view):
        if settings.directory.with_name("is-away").exists():
            raise UnavailableError("no answer")
        return super().scanner(context, settings, view)
"""


@pytest.fixture
def locator(shell: Shell) -> Iterator[PluginLocator]:
    with PluginLocator().startup(str(shell.properties)) as opened:
        yield opened


@pytest.fixture
def is_away(shell: Shell) -> Path:
    """Configure a store that does not answer scans while this file exists."""
    use(shell, "away:Away", AWAY)
    shell("kv", "put", "k", "v")
    return shell.folder / "is-away"


def rows(written: str) -> list[tuple[str, str]]:
    return [(name, value) for name, value in (one.split("\t") for one in written.splitlines())]


def test_a_pause_that_is_older_than_a_day_wants_attention(
    shell: Shell, locator: PluginLocator
) -> None:
    for service, hours in (("forgotten\t", 25), ("known", 23)):
        pause = ElectionPause("op@host", time.time() - 3_600 * hours, "upgrade", None)
        data = encode_directives(Directives(1, pause))
        locator.storage(BYTES).put(str(directives_key(service)), data)
    result = shell("status")
    assert result.exit_code == Status.REFUSED
    shown = [value for name, value in rows(result.stdout) if name == "attention"]
    assert shown == [
        "forgotten\\t has been paused for more than a day, by op@host: `kip30 resume` ends that"
    ]
    result = shell("status", "--json")
    record = json.loads(result.stdout)
    assert record["paused"] == ["forgotten\t", "known"]
    assert record["long_paused"] == ["forgotten\t"]
    shell("resume", "forgotten\t")
    assert shell("status").exit_code == Status.OK


def test_a_store_without_faults_is_counted(shell: Shell, locator: PluginLocator) -> None:
    with locator.leader_election("gone").lead("host-1", ""):
        pass
    locator.leader_election("led").nominate("host-1", "")
    for member in ("m1", "m2"):
        locator.group_membership("workers").join(member, "")
    result = shell("status")
    assert (result.exit_code, result.stderr) == (Status.OK, "")
    shown = dict(rows(result.stdout))
    assert shown.pop("read").endswith(" ms")
    assert shown == {
        "store": "embedded",
        "place": str(shell.folder / "store"),
        "services": "2",
        "led": "1",
        "groups": "1",
        "members": "2",
    }
    (found,) = shell.json("status")
    expect_fields(found, SCHEMA["status"])
    assert (found["leaderless"], found["unreadable"], found["error"]) == ([], 0, None)


def test_those_of_kip30_itself_are_not_counted(shell: Shell, locator: PluginLocator) -> None:
    locator.leader_election("kip30.lock/door").nominate("host-1", "")
    locator.group_membership("kip30.candidates/kip30.lock/door").join("0123456789abcdef", "")
    (found,) = shell.json("status")
    assert (found["services"], found["groups"], found["leaderless"]) == (0, 0, [])


def test_a_lasting_vacancy_wants_attention(shell: Shell, locator: PluginLocator) -> None:
    locator.group_membership(LINE).join("0123456789abcdef", "")
    locator.group_membership("kip30.candidates/kip30.lock/door").join("0123456789abcdef", "")
    result = shell("status")
    assert result.exit_code == Status.REFUSED
    timeout = f"{SESSION_SECONDS * time_scale():g} s"
    assert f"2 without a leader though candidates wait: looking again in {timeout}" in result.stderr
    told = [value for name, value in rows(result.stdout) if name == "attention"]
    ending = f" has had no leader for {timeout} or longer; in its line: 1"
    assert told == [f"kip30.lock/door{ending}", f"vacant{ending}"]
    result = shell("status", "--json")
    assert (result.exit_code, result.stderr) == (Status.REFUSED, "")
    assert json.loads(result.stdout)["leaderless"] == ["kip30.lock/door", "vacant"]


def test_a_service_whose_leader_cannot_be_read_is_not_vacant(
    shell: Shell, locator: PluginLocator
) -> None:
    locator.group_membership(LINE).join("0123456789abcdef", "")
    add_unreadable_leader(shell.folder / "store", "vacant")
    result = shell("status")
    assert (result.exit_code, result.stderr) == (Status.REFUSED, "")
    (told,) = [value for name, value in rows(result.stdout) if name == "attention"]
    assert told.startswith("service/vacant cannot be read: ")
    (found,) = shell.json_of(shell("status", "--json").stdout)
    assert (found["services"], found["led"], found["leaderless"]) == (1, 1, [])


def test_a_vacancy_that_ends_meanwhile_does_not(
    shell: Shell, locator: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def elect(_line: str) -> None:
        locator.leader_election("vacant").nominate("host-1", "")

    monkeypatch.setattr(status, "say", elect)
    locator.group_membership(LINE).join("0123456789abcdef", "")
    result = shell("status")
    assert (result.exit_code, "attention" in result.stdout) == (Status.OK, False)


def test_unreadable_records_want_attention(shell: Shell, locator: PluginLocator) -> None:
    for number in range(12):
        locator.group_membership("g").join(f"m{number:02}", "")
    with closing(sqlite3.connect(shell.folder / "store" / "kip30.db")) as database, database:
        assert database.execute("UPDATE member SET data = 5").rowcount == 12
    result = shell("status")
    assert result.exit_code == Status.REFUSED
    told = [value for name, value in rows(result.stdout) if name == "attention"]
    assert len(told) == 11
    assert "cannot be read" in told[0]
    assert told[-1] == "2 further records cannot be read"
    found = json.loads(shell("status", "--json").stdout)
    assert (found["unreadable"], len(found["unreadable_keys"])) == (12, 10)


@pytest.mark.parametrize("record", ["kip30.directives/s", "kip30.bans/g"])
def test_records_that_no_scan_can_read_want_attention(shell: Shell, record: str) -> None:
    shell("kv", "put", record, "x")
    damage(shell, record)
    (found,) = shell.json_of(shell("status", "--json").stdout)
    assert (found["unreadable"], found["unreadable_keys"]) == (1, [record])


@pytest.mark.parametrize("namespace", ["kip30.directives", "kip30.bans"])
@pytest.mark.parametrize("name", ["a b", "g/h"])
def test_a_record_with_a_foreign_name_hides_no_other(
    shell: Shell, locator: PluginLocator, namespace: str, name: str
) -> None:
    assert shell("pause", "paused").exit_code == Status.OK
    shell("group", "evict", "g", "m1", "--yes")
    known = locator.storage(BYTES).get("kip30.bans/g")
    assert known is not None
    locator.storage(BYTES).put(f"{namespace}/{name}", known.value)
    found = json.loads(shell("status", "--json").stdout)
    assert found["unreadable_keys"] == [f"{namespace}/{name}"]
    assert found["paused"] == ["paused"]
    assert [(one["group"], one["id"]) for one in found["banned"]] == [("g", "m1")]


def test_a_store_that_does_not_answer_is_an_error(shell: Shell, is_away: Path) -> None:
    is_away.touch()
    result = shell("status")
    assert (result.exit_code, result.stdout) == (Status.UNAVAILABLE, "")
    assert "no answer" in result.stderr


# -- watching


def watched(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, *between: Callable[[], object], words: str = ""
) -> str:
    """Return what a watch prints that makes the calls *between* its looks."""
    calls = iter(between)

    def pause(seconds: float) -> bool:
        assert seconds == 10
        call = next(calls, None)
        if call is not None:
            call()
        return call is None

    monkeypatch.setattr(status, "pause", pause)
    result = shell("status", "-w", *words.split())
    assert (result.exit_code, result.stderr) == (Status.OK, "")
    return result.stdout


def test_a_watch_prints_a_block_for_each_look_and_shows_an_outage(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, is_away: Path
) -> None:
    blocks = watched(shell, monkeypatch, is_away.touch, is_away.unlink).split("\n\n")
    before, during, after = ([name for name, _ in rows(block)] for block in blocks)
    head = ["time", "store", "place"]
    assert before == after == [*head, "read", "services", "led", "groups", "members"]
    assert during == [*head, "attention"]
    assert "the store does not answer: no answer" in blocks[1]


def test_a_watch_prints_an_outage_in_json(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, is_away: Path
) -> None:
    is_away.touch()
    found: dict[str, Any] = json.loads(watched(shell, monkeypatch, words="--json"))
    expect_fields(found, SCHEMA["status"])
    assert (found["store"], found["services"], found["error"]) == ("away", None, "no answer")


def test_a_watch_tells_lasting_vacancies_from_new_ones(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, locator: PluginLocator
) -> None:
    locator.group_membership(LINE).join("0123456789abcdef", "")
    now = [0.0]
    monkeypatch.setattr(overview, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def wait() -> None:
        now[0] += SESSION_SECONDS * time_scale()

    first, second = (
        json.loads(line)["leaderless"]
        for line in watched(shell, monkeypatch, wait, words="--json").splitlines()
    )
    assert (first, second) == ([], ["vacant"])


def test_a_vacancy_begins_again_after_an_outage(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, is_away: Path
) -> None:
    now = [0.0]
    monkeypatch.setattr(overview, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def end_outage() -> None:
        is_away.unlink()
        now[0] += 3600

    with PluginLocator().startup(str(shell.properties)) as locator:
        locator.group_membership(LINE).join("0123456789abcdef", "")
        shown = watched(shell, monkeypatch, is_away.touch, end_outage, words="--json")
    looks = [json.loads(line) for line in shown.splitlines()]
    assert [look["error"] for look in looks] == [None, "no answer", None]
    assert [look["leaderless"] for look in looks] == [[], [], []]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_watch(shell: Shell, number: signal.Signals) -> None:
    shell("kv", "put", "k", "v")
    with ended(shell.start("status", "-w")) as watch:
        assert line_of(watch.stdout).startswith("time\t")
        watch.send_signal(number)
        _, err = watch.communicate(timeout=PATIENCE_SECONDS * time_scale())
    assert (watch.returncode, err) == (128 + number, b"")


def test_a_watch_ends_when_its_reader_closes_the_pipe(shell: Shell) -> None:
    shell("kv", "put", "k", "v")
    with ended(shell.start("status", "-w")) as watch:
        assert watch.stdout is not None
        assert line_of(watch.stdout).startswith("time\t")
        watch.stdout.close()
        assert watch.wait(PATIENCE_SECONDS * time_scale()) == Status.OK


def test_a_watch_redraws_a_terminal_and_cuts_what_does_not_fit(
    shell: Shell, locator: PluginLocator
) -> None:
    for number in range(12):
        locator.group_membership("g").join(f"m{number:02}", "")
    with closing(sqlite3.connect(shell.folder / "store" / "kip30.db")) as database, database:
        database.execute("UPDATE member SET data = 5")
    screen, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 200, 0, 0))
    environment = {**plain_environment(), "TERM": "xterm"}
    shown = b""
    with ended(shell.start("status", "-w", stdout=terminal, env=environment)) as watch:
        os.close(terminal)
        while b"more lines" not in shown:
            assert is_readable(screen, PATIENCE_SECONDS * time_scale())
            shown += os.read(screen, 65536)
        watch.terminate()
    os.close(screen)
    assert shown.startswith(b"\x1b[H\x1b[2Jtime ")
    assert len(shown.splitlines()) == 11
    assert shown.count(b"attention") == 2
