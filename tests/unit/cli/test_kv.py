import os
import resource
from pathlib import Path

import pytest

from kip30.cli._exit_codes import Status

from .shell import Shell

LARGEST_MEMORY = 1 << 30
EVERY_BYTE = bytes(range(256))


def test_a_put_value_is_got_byte_by_byte(shell: Shell) -> None:
    assert shell("kv", "put", "a/b", "-", stdin=EVERY_BYTE).exit_code == Status.OK
    assert shell("kv", "get", "a/b").stdout_bytes == EVERY_BYTE


def test_an_argument_that_is_not_utf8_is_a_value(shell: Shell) -> None:
    shell("kv", "put", "a/b", b"\xff\xfe")
    assert shell("kv", "get", "a/b").stdout_bytes == b"\xff\xfe"


def test_a_value_with_a_newline_gets_no_other_one(shell: Shell) -> None:
    shell("kv", "put", "a", "-", stdin=b"one\ntwo\n")
    assert shell("kv", "get", "a").stdout == "one\ntwo\n"


def test_json_shows_value_and_version(shell: Shell) -> None:
    version = shell("kv", "put", "a/b", "hello").stdout.strip()
    expected = {"key": "a/b", "value": "hello", "version": version}
    assert shell.json("kv", "get", "a/b") == [expected]


def test_json_shows_what_is_not_text_in_base64(shell: Shell) -> None:
    shell("kv", "put", "a", "-", stdin=b"\xff")
    (shown,) = shell.json("kv", "get", "a")
    assert shown["value_base64"] == "/w=="
    assert "value" not in shown


@pytest.mark.parametrize("verb", ["get", "delete"])
def test_an_absent_key_is_refused(shell: Shell, verb: str) -> None:
    result = shell("kv", verb, "a")
    assert result.exit_code == Status.REFUSED
    assert result.stdout == ""
    assert result.stderr.startswith("kip30: there is no ")
    assert "kv put" not in result.stderr


def test_update_of_an_absent_key_creates_none(shell: Shell) -> None:
    assert shell("kv", "update", "a", "x").exit_code == Status.REFUSED
    assert shell("kv", "get", "a").exit_code == Status.REFUSED


def test_put_leaves_what_is_there(shell: Shell) -> None:
    shell("kv", "put", "a", "first")
    result = shell("kv", "put", "a", "second")
    assert result.exit_code == Status.REFUSED
    assert "`kip30 kv update`" in result.stderr
    assert shell("kv", "get", "a").stdout == "first"


def test_update_with_the_present_version_writes_a_new_one(shell: Shell) -> None:
    first = shell("kv", "put", "a", "1").stdout.strip()
    second = shell("kv", "update", "a", "2", "--version", first)
    assert second.exit_code == Status.OK
    assert second.stdout.strip() != first
    assert shell("kv", "get", "a").stdout == "2"


def test_update_with_an_old_version_is_refused(shell: Shell) -> None:
    first = shell("kv", "put", "a", "1").stdout.strip()
    shell("kv", "update", "a", "2")
    assert shell("kv", "update", "a", "3", "--version", first).exit_code == Status.REFUSED
    assert shell("kv", "get", "a").stdout == "2"


def test_delete_with_an_old_version_is_refused(shell: Shell) -> None:
    first = shell("kv", "put", "a", "1").stdout.strip()
    shell("kv", "update", "a", "2")
    assert shell("kv", "delete", "a", "--version", first).exit_code == Status.REFUSED
    assert shell("kv", "get", "a").stdout == "2"


def test_delete_prints_nothing(shell: Shell) -> None:
    shell("kv", "put", "a", "1")
    result = shell("kv", "delete", "a")
    assert (result.exit_code, result.output) == (Status.OK, "")
    assert shell("kv", "get", "a").exit_code == Status.REFUSED


def test_set_creates_and_replaces(shell: Shell) -> None:
    first = shell("kv", "set", "a/b", "-", stdin=EVERY_BYTE)
    assert shell("kv", "get", "a/b").stdout_bytes == EVERY_BYTE
    second = shell("kv", "set", "a/b", "2")
    assert (first.exit_code, second.exit_code) == (Status.OK, Status.OK)
    assert (
        shell.json("kv", "get", "a/b")[0]["version"]
        == second.stdout.strip()
        != first.stdout.strip()
    )


def test_set_with_a_fence_that_was_never_issued_is_refused(shell: Shell) -> None:
    for epoch in (0, 1, 2**63 - 1):
        result = shell("kv", "set", "a", "x", "--fence", f"never-led:{epoch}")
        assert result.exit_code == Status.REFUSED
    assert shell("kv", "get", "a").exit_code == Status.REFUSED


@pytest.mark.parametrize("version", ["0", str(2**63 - 1), "1.2147483648"])
def test_a_version_that_was_never_issued_creates_nothing(shell: Shell, version: str) -> None:
    assert shell("kv", "update", "a", "x", "--version", version).exit_code == Status.REFUSED
    assert shell("kv", "get", "a").exit_code == Status.REFUSED


@pytest.mark.parametrize("version", [str(2**63), "9" * 5000, "1.", "1.2.3", "\u0661"])
def test_a_malformed_or_too_large_version_is_a_usage_error(shell: Shell, version: str) -> None:
    assert shell("kv", "update", "a", "x", "--version", version).exit_code == Status.USAGE


def test_list_is_one_level_deep(shell: Shell) -> None:
    for key in ("a/b", "a/c", "a/b/c", "d"):
        shell("kv", "put", key, "")
    assert shell("kv", "list", "a").stdout == "a/b\na/c\n"
    assert shell("kv", "list").stdout == "d\n"
    assert shell.json("kv", "list", "a/b") == [{"key": "a/b/c"}]


@pytest.mark.parametrize("words", [("list", "n/"), ("watch", "n/", "--keys")])
def test_a_namespace_has_no_slash_at_its_end(shell: Shell, words: tuple[str, ...]) -> None:
    result = shell("kv", *words)
    assert result.exit_code == Status.USAGE
    assert "namespace 'n/' ends in '/': leave the trailing slash out" in result.stderr


def test_a_key_is_one_line_whatever_it_holds(shell: Shell) -> None:
    shell("kv", "put", "n/two\nlines\x1b[31m", "")
    assert shell("kv", "list", "n").stdout == "n/two\\nlines\\x1b[31m\n"


def test_a_fence_with_an_old_epoch_is_refused(shell: Shell) -> None:
    for _ in range(2):
        assert shell.finish("run", "--service", "s", "--", "true").returncode == Status.OK
    result = shell("kv", "put", "a", "x", "--fence", "s:1")
    assert result.exit_code == Status.REFUSED
    assert "must stop acting as leader" in result.stderr
    assert shell("kv", "get", "a").exit_code == Status.REFUSED


@pytest.mark.parametrize("fence", ["s", "s:", ":1", "s:x", "s:-1", "s:" + "9" * 20])
def test_a_malformed_fence_is_refused_before_the_store_is_opened(shell: Shell, fence: str) -> None:
    result = shell("kv", "put", "a", "x", "--fence", fence)
    assert result.exit_code == Status.USAGE
    assert "SERVICE:EPOCH" in result.stderr
    assert not (shell.folder / "store").exists()


def test_the_error_for_a_version_that_is_no_number_shows_the_format(shell: Shell) -> None:
    result = shell("kv", "update", "a", "x", "--version", "new")
    assert result.exit_code == Status.USAGE
    assert "give one or two numbers, as 12 or 12.3" in result.stderr


def test_a_key_that_is_no_key_is_a_usage_error(shell: Shell) -> None:
    assert shell("kv", "get", "/a").exit_code == Status.USAGE


def test_a_value_that_is_too_large_is_a_usage_error(shell: Shell) -> None:
    result = shell("kv", "put", "a", "-", stdin=b"x" * (256 * 1024 + 1))
    assert result.exit_code == Status.USAGE
    assert "262144 is the limit" in result.stderr


def test_a_value_without_end_is_a_usage_error(shell: Shell) -> None:
    with Path("/dev/zero").open("rb") as endless:
        result = shell.finish(
            *("kv", "put", "a", "-"), stdin=endless, preexec_fn=lambda: limit_memory(LARGEST_MEMORY)
        )
    assert result.returncode == Status.USAGE
    assert b"standard input has more than 16777216 bytes" in result.stderr
    assert shell("kv", "get", "a").exit_code == Status.REFUSED


def limit_memory(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (size, size))


def test_a_terminal_gets_its_line_ended(shell: Shell) -> None:
    shell("kv", "put", "a", "no newline")
    screen, terminal = os.openpty()
    assert shell.finish("kv", "get", "a", stdout=terminal).returncode == Status.OK
    assert os.read(screen, 100) == b"no newline\r\n"
    os.close(screen)
    os.close(terminal)
