"""Keys with a time to live, and the sweep that deletes them."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kip30 import (
    AuthenticationError,
    FencedError,
    Kip30Error,
    LifecycleError,
    OutcomeUnknownError,
    PluginLocator,
    UnavailableError,
    ValueChange,
    Version,
)
from kip30.cli import _kv_bulk
from kip30.cli._exit_codes import Status
from kip30.codecs import BYTES
from kip30.driver.records import Fence
from kip30.operations import key_expiry, set_for, sweep_keys
from kip30.storage import Storage
from kip30_conformance.polling import eventually

from .shell import Shell
from .test_kv_bulk import damage as damage_record

BRIEF = "0.001s"
OVER = 1e-6


@pytest.fixture
def storage(shell: Shell) -> Iterator[Storage[bytes]]:
    with PluginLocator().startup(str(shell.properties)) as locator:
        yield locator.storage(BYTES)


def swept(shell: Shell, *option: str) -> list[int]:
    (one,) = shell.json("kv", "sweep", *option)
    return [one[name] for name in ("deleted", "waiting", "changed", "kept")]


def value(storage: Storage[bytes], key: str) -> bytes:
    found = storage.get(key)
    return b"" if found is None else found.value


def records(shell: Shell) -> list[str]:
    return shell("kv", "list", "-r", key_expiry.RECORDS).stdout.split()


def test_a_key_is_there_until_its_time_is_over_and_then_the_next_sweep_deletes_it(
    shell: Shell,
) -> None:
    assert shell("kv", "set", "a/lasting", "x", "--ttl", "1min").exit_code == Status.OK
    assert shell("kv", "set", "a/brief", "x", "--ttl", BRIEF).exit_code == Status.OK
    assert shell("kv", "set", "a/other", "x").exit_code == Status.OK
    assert shell("kv", "get", "a/brief").stdout == "x"
    assert swept(shell, "--dry-run") == swept(shell) == [1, 1, 0, 0]
    assert shell("kv", "list", "a").stdout.split() == ["a/lasting", "a/other"]
    assert len(records(shell)) == 1
    assert swept(shell) == [0, 1, 0, 0]
    assert "a/other" in shell("kv", "export").stdout
    assert key_expiry.RECORDS not in shell("kv", "export").stdout


@pytest.mark.parametrize(
    "change",
    [["update"], ["set"], ["delete", "put"]],
    ids=["updated", "set", "created again"],
)
def test_a_key_that_was_written_again_without_a_time_stays(shell: Shell, change: list[str]) -> None:
    shell("kv", "set", "k", "x", "--ttl", BRIEF)
    for verb in change:
        value = [] if verb == "delete" else ["y"]
        assert shell("kv", verb, "k", *value).exit_code == Status.OK
    assert swept(shell) == [0, 0, 1, 0]
    assert shell("kv", "get", "k").stdout == "y"
    assert records(shell) == []


def test_a_later_time_replaces_the_former_one(shell: Shell) -> None:
    shell("kv", "set", "k", "x", "--ttl", BRIEF)
    shell("kv", "set", "k", "x", "--ttl", "1h")
    assert swept(shell) == [0, 1, 0, 0]
    shell("kv", "set", "k", "x", "--ttl", BRIEF)
    assert swept(shell) == [1, 0, 0, 0]


def test_of_two_writers_the_later_one_says_until_when(
    shell: Shell, storage: Storage[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The former one notes its time last."""
    right, others = storage.set, [b"later"]

    def overtaken(key: str, *given: Any, **named: Any) -> Version:
        version = right(key, *given, **named)
        if key == "k" and others:
            set_for(storage, "k", others.pop(), OVER)
        return version

    monkeypatch.setattr(storage, "set", overtaken)
    set_for(storage, "k", b"former", OVER)
    assert value(storage, "k") == b"later"
    assert swept(shell) == [1, 0, 0, 0]


def test_a_time_is_not_that_of_a_value_that_another_client_has_written_since(
    shell: Shell, storage: Storage[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = storage.last_write

    def overtaken(key: str) -> tuple[Version, str] | None:
        storage.set(key, b"lasting")
        return right(key)

    with monkeypatch.context() as patch:
        patch.setattr(storage, "last_write", overtaken)
        set_for(storage, "k", b"brief", OVER)
    assert swept(shell) == [0, 0, 0, 0]
    assert value(storage, "k") == b"lasting"


def test_a_record_from_another_store_does_not_keep_a_time_from_being_noted(
    shell: Shell, storage: Storage[bytes]
) -> None:
    set_for(storage, "k", b"x", 3_600)
    (record,) = records(shell)
    fields = json.loads(value(storage, record)) | {"version": "999999999"}
    storage.set(record, json.dumps(fields).encode())
    set_for(storage, "k", b"x", OVER)
    assert swept(shell) == [1, 0, 0, 0]


def test_a_copy_with_the_version_of_a_key_that_ends_stays(shell: Shell, tmp_path: Path) -> None:
    """A new store gives the same versions to other values."""
    shell("kv", "set", "k", "brief", "--ttl", BRIEF)
    version = shell("kv", "get", "k", "-o", "json")
    shell("kv", "set", "k", "lasting")
    exported = tmp_path / "exported"
    exported.write_text(shell("kv", "export", "--all").stdout)
    copy = ("--set", f"plugin.embedded.directory={tmp_path / 'copy'}")
    assert shell("kv", "import", str(exported), *copy).exit_code == Status.OK
    copied = shell("kv", "get", "k", "-o", "json", *copy)
    assert json.loads(copied.stdout)["version"] == json.loads(version.stdout)["version"]
    assert shell("kv", "sweep", *copy).stdout.split() == ["0", "0", "1", "0"]
    assert shell("kv", "get", "k", *copy).stdout == "lasting"


def test_the_end_of_a_key_is_an_event_like_any_other_deletion(
    shell: Shell, storage: Storage[bytes]
) -> None:
    set_for(storage, "n/k", b"x", OVER)
    changes = list[ValueChange[bytes]]()
    with PluginLocator().startup(str(shell.properties)) as other:
        registry = other.listener_registry(BYTES)
        registry.add_value_change_listener("n/k", changes.append, initial=True)
        eventually(lambda: bool(changes))
        assert swept(shell) == [1, 0, 0, 0]
        eventually(lambda: changes[-1].value is None)


def test_a_record_whose_key_is_gone_is_removed_by_the_next_sweep(
    shell: Shell, storage: Storage[bytes]
) -> None:
    """As after a sweep that was killed between the two deletions."""
    set_for(storage, "k", b"x", OVER)
    storage.delete("k")
    assert swept(shell) == [0, 0, 1, 0]
    assert records(shell) == []


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"[]",
        b'{"format": 2}',
        b'{"format": 1}',
        b'{"format": 1, "key": "k", "version": "1", "until": "soon"}',
        b'{"format": 1, "key": "k", "version": "one", "until": 1}',
        b'{"format": 1, "key": "k", "version": "1", "until": NaN}',
        b'{"format": 1, "key": 7, "version": "1", "until": 1}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_record_ends_no_key_and_is_named(
    shell: Shell, storage: Storage[bytes], damage: bytes
) -> None:
    set_for(storage, "k", b"x", OVER)
    set_for(storage, "l", b"x", OVER)
    (record,) = (one for one in records(shell) if b'"k"' in value(storage, one))
    storage.set(record, damage)
    result = shell("kv", "sweep")
    assert result.exit_code == Status.REFUSED
    assert record in result.stderr
    assert result.stdout.split() == ["1", "0", "0", "1"]
    assert storage.get("k") is not None
    assert storage.get(record) is not None


def test_a_record_that_no_scan_can_read_ends_no_key_and_is_named(
    shell: Shell, storage: Storage[bytes]
) -> None:
    set_for(storage, "k", b"x", OVER)
    (record,) = records(shell)
    damage_record(shell, record)
    result = shell("kv", "sweep")
    assert (result.exit_code, result.stdout.split()) == (Status.REFUSED, ["0", "0", "0", "1"])
    assert storage.get("k") is not None


def test_the_record_of_another_key_ends_none(shell: Shell, storage: Storage[bytes]) -> None:
    """A record under a name of its own could end a key for which no one has set a time."""
    version = storage.set("k", b"x")
    fields = {"format": 1, "key": "k", "version": str(version), "until": 1}
    storage.set(f"{key_expiry.RECORDS}/mine", json.dumps(fields).encode())
    result = shell("kv", "sweep")
    assert (result.exit_code, result.stdout.split()[3]) == (Status.REFUSED, "1")
    assert storage.get("k") is not None


def test_sweeps_without_a_pause_are_refused(shell: Shell) -> None:
    result = shell("kv", "sweep", "--every", "0.9s")
    assert result.exit_code == Status.USAGE
    assert "1 s" in result.stderr


@pytest.mark.parametrize("written", ["0s", "1", "-1s", "soon", ""])
def test_a_time_that_is_none_is_refused(shell: Shell, written: str) -> None:
    result = shell("kv", "set", "k", "x", "--ttl", written)
    assert result.exit_code == Status.USAGE
    assert "--ttl" in result.stderr
    assert shell("kv", "list", "-r").stdout == ""


def test_a_time_of_centuries_is_refused(shell: Shell) -> None:
    result = shell("kv", "set", "k", "x", "--ttl", "9999999d")
    assert (result.exit_code, "10 years" in result.stderr) == (Status.USAGE, True)
    assert shell("kv", "list", "-r").stdout == ""


def test_data_of_a_group_have_no_time(shell: Shell) -> None:
    guard = "g:1:m"
    result = shell("kv", "set", "k", "x", "--ttl", "1h", "--guard", guard)
    assert result.exit_code == Status.USAGE


def test_a_lost_time_is_said(storage: Storage[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is written then, and would stay without a word."""

    def silent(*_given: Any, **_named: Any) -> Version:
        raise UnavailableError("no answer")

    monkeypatch.setattr(storage, "put", silent)
    with pytest.raises(OutcomeUnknownError, match="may stay for ever"):
        set_for(storage, "k", b"x", 3_600)
    assert storage.get("k") is not None


def test_a_sweep_stops_when_the_store_does_not_answer(
    shell: Shell, storage: Storage[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        set_for(storage, f"k{number}", b"x", OVER)
    deletions = list[str]()

    def silent(key: str, **_: object) -> None:
        deletions.append(key)
        raise UnavailableError("no answer")

    monkeypatch.setattr(storage, "delete", silent)
    done = sweep_keys(str(shell.properties), storage)
    assert isinstance(done.error, UnavailableError)
    assert len(deletions) == 1
    assert done.deleted == 0


def test_a_key_whose_time_is_set_anew_during_a_sweep_is_swept_later(
    shell: Shell, storage: Storage[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the deletions of the key, which fails, and of the record, which must fail too."""
    set_for(storage, "k", b"x", OVER)
    right, others = storage.delete, [b"again"]

    def overtaken(key: str, **named: Any) -> None:
        if others:
            set_for(storage, "k", others.pop(), OVER)
        right(key, **named)

    monkeypatch.setattr(storage, "delete", overtaken)
    assert sweep_keys(str(shell.properties), storage)[:3] == (0, 0, 1)
    assert sweep_keys(str(shell.properties), storage)[:3] == (1, 0, 0)


def test_a_writer_that_is_fenced_out_sets_no_time(storage: Storage[bytes]) -> None:
    with pytest.raises(FencedError):
        set_for(storage, "k", b"x", 3_600, fence=Fence("s", 7))
    assert storage.get("k") is None


def test_a_sweep_without_a_store_says_so_and_those_that_follow_go_on(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("kv", "set", "k", "x", "--ttl", BRIEF)
    right, errors = sweep_keys, [UnavailableError("no answer")] * 2

    def away_at_first(config: Any, storage: Any, **named: Any) -> key_expiry.Sweep:
        if errors:
            raise errors.pop()
        return right(config, storage, **named)

    monkeypatch.setattr(_kv_bulk, "sweep_keys", away_at_first)
    result = shell("kv", "sweep")
    assert result.exit_code == Status.UNAVAILABLE
    assert result.stdout == ""
    ends = iter([False, True])
    monkeypatch.setattr(_kv_bulk, "pause", lambda _seconds: next(ends))
    result = shell("kv", "sweep", "--every", "1s")
    assert result.exit_code == Status.OK
    assert "tries again" in result.stderr
    assert result.stdout.split() == ["1", "0", "0", "0"]


@pytest.mark.parametrize(
    ("options", "sweeps"), [([], 1), (["--every", "1s"], 2)], ids=["once", "again"]
)
def test_a_configuration_that_is_a_pipe_is_read_once(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, options: list[str], sweeps: int
) -> None:
    """Read again it is empty, which chooses the default store."""
    shell("kv", "set", "k", "x", "--ttl", BRIEF)
    ends = iter([False, True])
    monkeypatch.setattr(_kv_bulk, "pause", lambda _seconds: next(ends))
    reading, writing = os.pipe()
    os.write(writing, shell.properties.read_bytes())
    os.close(writing)
    try:
        result = shell("kv", "sweep", "--config", f"/dev/fd/{reading}", *options)
    finally:
        os.close(reading)
    assert result.exit_code == Status.OK, result.stderr
    assert result.stdout.splitlines() == ["1\t0\t0\t0", "0\t0\t0\t0"][:sweeps]


@pytest.mark.parametrize("error", [UnavailableError("no answer"), AuthenticationError("no")])
def test_a_key_is_counted_although_its_record_stays(
    shell: Shell, storage: Storage[bytes], monkeypatch: pytest.MonkeyPatch, error: Kip30Error
) -> None:
    set_for(storage, "k", b"x", OVER)
    right = storage.delete

    def refusing(key: str, **named: Any) -> None:
        if key.startswith(key_expiry.RECORDS):
            raise error
        right(key, **named)

    monkeypatch.setattr(storage, "delete", refusing)
    done = sweep_keys(str(shell.properties), storage)
    assert storage.get("k") is None
    assert done.deleted == 1
    assert "k" not in done.kept


def test_a_sweep_through_a_closed_storage_raises(shell: Shell, storage: Storage[bytes]) -> None:
    set_for(storage, "k", b"x", OVER)
    storage.close()
    with pytest.raises(LifecycleError):
        sweep_keys(str(shell.properties), storage)


@pytest.mark.medium
def test_sweeps_go_on_until_they_are_interrupted(shell: Shell) -> None:
    process = shell.start("kv", "sweep", "--every", "1s", "--json")
    shell("kv", "set", "k", "x", "--ttl", "0.2s")
    eventually(lambda: shell("kv", "list", "-r").stdout == "")
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert sum(json.loads(line)["deleted"] for line in output.splitlines()) == 1
