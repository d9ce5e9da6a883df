"""Many keys at once: tree, list --recursive, export, import, delete --recursive."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kip30 import AuthenticationError, OutcomeUnknownError, PluginLocator, UnavailableError
from kip30.cli import _kv_bulk
from kip30.cli._exit_codes import Status
from kip30.codecs import BYTES
from kip30.operations import delete_versions
from kip30.storage import Storage

from .shell import Shell

KEYS = {"top": b"1", "config/motd": b"hello", "config/db/host": b"h", "config-2/x": b"\xff\x00"}


@pytest.fixture
def filled(shell: Shell) -> Shell:
    for key, value in KEYS.items():
        assert shell("kv", "put", key, "-", stdin=value).exit_code == Status.OK
    assert shell("kv", "put", "kip30.counter/c/value", "7").exit_code == Status.OK
    return shell


def other(folder: Path) -> tuple[str, str]:
    """Return the option that names another store."""
    return ("--set", f"plugin.embedded.directory={folder / 'other'}")


def stored(shell: Shell, *option: str) -> dict[str, str]:
    found = shell.json("kv", "tree", "--values", *option)
    return {one["key"]: one.get("value", one.get("value_base64")) for one in found}


def test_a_tree_has_a_line_for_each_namespace_and_key(filled: Shell) -> None:
    lines = filled("kv", "tree").stdout.splitlines()
    names = [line.split("\t")[0] for line in lines]
    assert names == [
        *("config-2/", "config-2/x", "config/", "config/db/", "config/db/host"),
        *("config/motd", "top"),
    ]
    assert lines[-1].split("\t")[1] == "1"
    assert filled("kv", "tree", "config/db").stdout.split("\t")[0].split() == [
        *("config/", "config/db/", "config/db/host")
    ]
    assert filled("kv", "tree", "config", "--values").stdout.rstrip().endswith("\thello")


def test_all_keys_are_listed_but_those_of_kip30_itself(filled: Shell) -> None:
    assert filled("kv", "list", "--recursive").stdout.split() == sorted(KEYS)
    assert filled("kv", "list", "-r", "config").stdout.split() == ["config/db/host", "config/motd"]
    assert filled("kv", "list", "-r", "kip30.counter").stdout == "kip30.counter/c/value\n"
    assert "kip30.counter/" in filled("kv", "tree", "--all").stdout


def test_an_export_is_imported_byte_by_byte_into_another_store(
    filled: Shell, tmp_path: Path
) -> None:
    exported = filled("kv", "export").stdout_bytes
    assert len(exported.splitlines()) == len(KEYS)
    option = other(tmp_path)
    result = filled("kv", "import", *option, stdin=exported)
    assert (result.exit_code, result.stdout.split()[:2]) == (Status.OK, ["created", "4"])
    assert stored(filled, *option) == stored(filled)
    again = filled("kv", "import", *option, stdin=exported)
    assert (again.exit_code, again.stdout.split()[6:8]) == (Status.OK, ["equal", "4"])


def test_a_file_that_cannot_be_read_is_an_error_of_the_system(
    filled: Shell, tmp_path: Path
) -> None:
    result = filled("kv", "import", str(tmp_path / "nowhere"))
    assert result.exit_code == Status.SYSTEM
    assert "No such file" in result.stderr
    exported = tmp_path / "exported"
    exported.write_bytes(filled("kv", "export").stdout_bytes)
    assert filled("kv", "import", str(exported)).stdout.split()[6:8] == ["equal", "4"]


def test_every_value_that_can_be_written_can_be_exported_and_imported(
    shell: Shell, tmp_path: Path
) -> None:
    with PluginLocator().startup(str(shell.properties)) as locator:
        storage = locator.storage(BYTES)
        storage.put("a/controls", b"\x01" * 256 * 1024)  # six bytes of JSON for each
        storage.put("a/binary", b"\xff" * 256 * 1024)
        storage.put("a/empty", b"")
    exported = shell("kv", "export").stdout_bytes
    option = other(tmp_path)
    assert shell("kv", "import", *option, stdin=exported).exit_code == Status.OK
    assert stored(shell, *option) == stored(shell)


@pytest.mark.parametrize(
    ("rule", "status", "motd", "created"),
    [
        ("fail", Status.REFUSED, "changed", False),
        ("skip", Status.OK, "changed", True),
        ("update", Status.OK, "hello", True),
    ],
)
def test_keys_with_another_value_are_handled_as_asked(
    filled: Shell, rule: str, status: Status, motd: str, *, created: bool
) -> None:
    exported = filled("kv", "export").stdout_bytes
    filled("kv", "set", "config/motd", "changed")
    filled("kv", "delete", "top")
    result = filled("kv", "import", "--on-conflict", rule, stdin=exported)
    assert result.exit_code == status
    found = stored(filled)
    assert found["config/motd"] == motd
    assert ("top" in found) is created
    assert ("'config/motd' has another value" in result.stderr) is (rule == "fail")


def test_a_dry_run_of_an_import_counts_and_writes_nothing(filled: Shell) -> None:
    exported = filled("kv", "export").stdout_bytes
    filled("kv", "set", "config/motd", "changed")
    filled("kv", "delete", "top")
    before = stored(filled)
    result = filled("kv", "import", "-n", "--on-conflict", "update", "--json", stdin=exported)
    assert json.loads(result.stdout) == {
        "created": 1,
        "updated": 1,
        "kept": 0,
        "equal": 2,
        "failed": 0,
        "dry_run": True,
    }
    assert stored(filled) == before


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "it is no JSON"),
        (b"[" * 100_000, "it is no JSON"),
        (b'"text"', "it is no object"),
        (b'{"value": "v"}', "key"),
        (b'{"key": "/a", "value": "v"}', "leave the slash out"),
        (b'{"key": "a"}', "neither"),
        (b'{"key": "a", "value": 1}', "neither"),
        (b'{"key": "a", "value_base64": "*"}', "no base64"),
        (b'{"key": "good", "value": "2"}', "in an earlier line"),
        (b'{"key": "a", "value": "\xff"}', "it is no JSON"),
        (b'{"key": "a", "value": "' + b"x" * 5 * 1024 * 1024 + b'"}', "more than"),
        (rb'{"key": "a", "value": "\ud800"}', "lone surrogate"),
        (rb'{"key": "\ud800", "value": "v"}', "lone surrogate"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_written(shell: Shell, line: bytes, reason: str) -> None:
    result = shell("kv", "import", stdin=b'{"key": "good", "value": "1"}\n\n' + line + b"\n")
    assert result.exit_code == Status.USAGE
    assert result.stderr.startswith("kip30: line 3: ")
    assert reason in result.stderr
    assert shell("kv", "list").output == ""


def test_a_value_above_the_limit_is_named_and_nothing_is_written(shell: Shell) -> None:
    large = b'{"key": "large", "value": "' + b"x" * (256 * 1024 + 1) + b'"}\n'
    result = shell("kv", "import", stdin=b'{"key": "good", "value": "1"}\n' + large)
    assert result.exit_code == Status.USAGE
    assert "'large' has 262145 bytes" in result.stderr
    assert shell("kv", "list").output == ""


def test_a_namespace_is_deleted_with_all_below_and_nothing_beside(filled: Shell) -> None:
    result = filled("kv", "delete", "--recursive", "config", "--yes", "--json")
    assert json.loads(result.stdout) == {
        "namespace": "config",
        "deleted": 2,
        "changed": 0,
        "gone": 0,
        "unknown": 0,
        "left": 0,
        "kept": 0,
        "dry_run": False,
    }
    assert sorted(stored(filled)) == ["config-2/x", "top"]
    assert filled("kv", "get", "kip30.counter/c/value").exit_code == Status.OK


def test_a_dry_run_of_a_deletion_deletes_nothing(filled: Shell) -> None:
    result = filled("kv", "delete", "-r", "config", "-n")
    assert result.stdout.split()[:2] == ["deleted", "2"]
    assert sorted(stored(filled)) == sorted(KEYS)


def test_a_deletion_of_many_keys_must_be_confirmed(filled: Shell) -> None:
    result = filled("kv", "delete", "-r", "config")
    assert result.exit_code == Status.USAGE
    assert "--yes" in result.stderr
    assert sorted(stored(filled)) == sorted(KEYS)


def test_a_key_that_changed_since_it_was_listed_stays(
    filled: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = delete_versions

    def after_a_change(storage: object, listed: list[object]) -> object:
        filled("kv", "set", "config/motd", "new")
        filled("kv", "delete", "config/db/host")
        filled("kv", "put", "config/more", "later")
        return delete(storage, listed)  # type: ignore[arg-type]

    monkeypatch.setattr(_kv_bulk, "delete_versions", after_a_change)
    result = filled("kv", "delete", "-r", "config", "--yes")
    assert result.exit_code == Status.REFUSED
    assert result.stdout.split() == [
        *("deleted", "0", "changed", "1", "gone", "1", "unknown", "0", "left", "0", "kept", "0")
    ]
    assert "'config/motd' has changed, and stays" in result.stderr
    assert sorted(stored(filled)) == ["config-2/x", "config/more", "config/motd", "top"]


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_an_empty_namespace_is_refused(filled: Shell, option: str) -> None:
    result = filled("kv", "delete", "--recursive", "", option)
    assert result.exit_code == Status.USAGE
    assert "needs a namespace" in result.stderr
    assert sorted(stored(filled)) == sorted(KEYS)


@pytest.mark.parametrize(
    ("error", "status", "left"),
    [
        (UnavailableError("away"), Status.UNAVAILABLE, "2"),
        (OutcomeUnknownError("lost"), Status.UNKNOWN, "1"),
    ],
)
def test_a_deletion_stops_once_the_store_does_not_answer(
    filled: Shell, monkeypatch: pytest.MonkeyPatch, error: Exception, status: Status, left: str
) -> None:
    def fails(*_: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(Storage, "delete", fails)
    result = filled("kv", "delete", "-r", "config", "--yes")
    assert result.exit_code == status
    assert result.stdout.split()[-4:-2] == ["left", left]
    assert str(error) in result.stderr
    result = filled("kv", "delete", "-r", "config", "--yes", "--json")
    assert result.exit_code == status
    assert json.loads(result.stdout)["left"] == int(left)
    assert json.loads(result.stderr.splitlines()[-1])["error"]["message"] == str(error)


def test_a_key_that_may_not_be_deleted_keeps_no_other_and_is_named(
    filled: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = Storage.delete

    def forbidding(self: Storage[bytes], key: str, **options: Any) -> None:
        if key == "config/db/host":
            raise AuthenticationError("permission denied")
        delete(self, key, **options)

    monkeypatch.setattr(Storage, "delete", forbidding)
    result = filled("kv", "delete", "-r", "config", "--yes", "--json")
    assert result.exit_code == Status.REFUSED
    counts = json.loads(result.stdout)
    assert (counts["deleted"], counts["kept"]) == (1, 1)
    assert "'config/db/host' was not deleted: permission denied" in result.stderr
    assert sorted(stored(filled)) == ["config-2/x", "config/db/host", "top"]


@pytest.mark.parametrize(
    "words",
    [
        ("delete", "top", "--yes"),
        ("delete", "top", "--dry-run"),
        ("delete", "config", "-r", "--yes", "--version", "1"),
        ("delete", "config", "-r", "--yes", "--fence", "s:1"),
    ],
)
def test_options_that_exclude_each_other_are_refused(filled: Shell, words: tuple[str, ...]) -> None:
    assert filled("kv", *words).exit_code == Status.USAGE
    assert sorted(stored(filled)) == sorted(KEYS)


@pytest.mark.parametrize("command", ["tree", "export"])
def test_an_unreadable_record_is_named_and_the_others_are_printed(
    filled: Shell, command: str
) -> None:
    damage(filled, "config/motd")
    result = filled("kv", command)
    assert result.exit_code == Status.REFUSED
    assert "is left out" in result.stderr
    assert "config/motd" not in result.stdout
    assert "config/db/host" in result.stdout


def damage(shell: Shell, key: str) -> None:
    """Overwrite the record of *key* with what kip30 did not write."""
    namespace, _, name = key.rpartition("/")
    with closing(sqlite3.connect(shell.folder / "store" / "kip30.db")) as database, database:
        changed = database.execute(
            "UPDATE kv SET data = 5 WHERE namespace = ? AND name = ?",
            (namespace.encode(), name.encode()),
        )
        assert changed.rowcount == 1
