import json
import signal
import subprocess
from typing import Any

import psutil
import pytest

from kip30 import PluginLocator
from kip30.cli._exit_codes import Status
from kip30.coordinator import Item, ShareGuard, describe_group, parse_guard
from kip30.coordinator.work_items import named_topic, numbered_item
from kip30.names import escape
from kip30_conformance.polling import time_scale

from .shell import PATIENCE_SECONDS, Shell, ended, eventually, line_of

SHOW = 'echo "$KIP30_GROUP:$KIP30_SHARE"'
STAY = "echo ready; exec sleep 600"


def coordinate(*words: str) -> tuple[str, ...]:
    return ("coordinate", "--group", "g", *words)


def test_a_single_process_has_all_shards(shell: Shell) -> None:
    result = shell.finish(*coordinate("--shards", "4", "sh", "-c", SHOW))
    assert (result.returncode, result.stdout) == (Status.OK, b"g:0 1 2 3\n")


def test_the_items_are_the_lines_of_a_file(shell: Shell) -> None:
    (shell.folder / "list").write_text("one\n\ntwo words\nthree")
    show = 'cat "$KIP30_SHARE_FILE"; echo "${KIP30_SHARE-unset}"'
    result = shell.finish(*coordinate("--items", "list", "sh", "-c", show))
    assert (result.returncode, result.stdout) == (0, b"one\ntwo words\nthree\nunset\n")


@pytest.mark.parametrize(("command", "status"), [("exit 7", 7), ("kill -9 $$", 128 + 9)])
def test_the_commands_status_is_passed_on(shell: Shell, command: str, status: int) -> None:
    assert shell.finish(*coordinate("--shards=1", "sh", "-c", command)).returncode == status


def test_a_command_that_ends_is_run_again_if_asked_for(shell: Shell) -> None:
    count = 'echo >> runs; test "$(wc -l < runs)" -lt 2 || exec sleep 600'
    with ended(shell.start(*coordinate("--shards=1", "--restart", "sh", "-c", count))) as runner:
        runs = shell.folder / "runs"
        eventually(lambda: runs.exists() and runs.read_text() == "\n\n")
        runner.terminate()
        assert runner.wait(PATIENCE_SECONDS * time_scale()) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "give --shards, --items or --items-key, one of them"),
        (("--shards=2", "--items=list"), "give --shards, --items or --items-key, one of them"),
        (("--items=list", "--items-key=k"), "give --shards, --items or --items-key, one of them"),
        (("--items-key=/k",), "key"),
        (("--items=empty",), "there is nothing to divide"),
        (("--items=twice",), "an item must not be in the list twice: 'a'"),
        (("--items=/dev/zero",), "/dev/zero is longer than 16 MiB: use several groups"),
        (("--items=nul",), "an item must be one line that is not empty: 'b\\x00c'"),
        (("--shards=0",), "0 is not in the range"),
    ],
)
def test_invalid_shards_or_items_are_a_usage_error(
    shell: Shell, words: tuple[str, ...], complaint: str
) -> None:
    (shell.folder / "empty").write_text("\n\n")
    (shell.folder / "twice").write_text("a\nb\na\n")
    (shell.folder / "nul").write_text("a\nb\0c\n")
    result = shell(*coordinate(*words, "true"))
    assert result.exit_code == Status.USAGE
    assert complaint in result.stderr


def test_a_missing_list_is_an_error_of_the_system(shell: Shell) -> None:
    result = shell(*coordinate("--items=nowhere", "true"))
    assert result.exit_code == Status.SYSTEM
    assert "nowhere: No such file or directory" in result.stderr


def test_a_process_without_a_share_exits_when_its_wait_is_over(shell: Shell) -> None:
    with ended(shell.start(*coordinate("--shards=1", "sh", "-c", STAY))) as first:
        assert line_of(first.stdout) == "ready"
        second = shell.finish(*coordinate("--shards=1", "--wait=1", "true"))
        assert second.returncode == Status.NOT_ELECTED
        assert "`kip30 coordinate-status g`" in second.stderr.decode()
        first.terminate()


def test_the_status_of_a_group_shows_each_member_with_its_share(shell: Shell) -> None:
    assert shell("coordinate-status", "g").exit_code == Status.REFUSED
    with ended(shell.start(*coordinate("--shards=3", "--id=n1", "sh", "-c", STAY))) as runner:
        assert line_of(runner.stdout) == "ready"
        (line,) = shell("coordinate-status", "g").stdout.splitlines()
        member, instance, since, share = line.split("\t")
        assert member.startswith("n1-")
        assert (instance, since, share) == ("-", "1", "0-2")
        found = json.loads(shell("coordinate-status", "g", "--json").stdout)
        assert found["state"]["members"][0]["share"] == "0-2"
        with ended(shell.start("coordinate-status", "g", "--watch")) as watching:
            assert line_of(watching.stdout) == line
            watching.terminate()
        runner.terminate()


def test_a_watch_of_the_status_outlasts_an_outage(shell: Shell) -> None:
    shell.configure(plugin_operation_timeout_ms=round(1000 * time_scale()))
    with (
        ended(shell.start(*coordinate("--shards=1", "sh", "-c", STAY))) as member,
        ended(shell.start("coordinate-status", "g", "--watch", "--json")) as watching,
    ):
        while not shows_member(line_of(watching.stdout)):
            pass
        with shell.locked_store():
            assert line_of(watching.stderr).startswith("kip30: waiting for the store: ")
        member.terminate()
        while shows_member(line_of(watching.stdout)):
            pass
        watching.terminate()
        assert watching.stderr is not None
        assert watching.stderr.read() == b""


def shows_member(line: str) -> bool:
    """Return whether the JSON of a group shows a member."""
    state = json.loads(line)["state"]
    return state is not None and any(one["present"] for one in state["members"])


def test_a_group_without_members_can_be_deleted(shell: Shell) -> None:
    assert shell("coordinate-delete", "g").exit_code == Status.REFUSED
    with ended(shell.start(*coordinate("--shards=3", "sh", "-c", STAY))) as runner:
        assert line_of(runner.stdout) == "ready"
        refused = shell("coordinate-delete", "g")
        assert refused.exit_code == Status.REFUSED
        assert "group 'g' has members: nothing was deleted" in refused.stderr
        assert "end its processes first" in refused.stderr
        runner.terminate()
        runner.wait(PATIENCE_SECONDS * time_scale())
    assert shell("kv", "list", "kip30.group/g").stdout == "kip30.group/g/state\n"
    assert shell("coordinate-delete", "g").exit_code == Status.OK
    assert shell("kv", "list", "kip30.group/g").stdout == ""
    assert shell("coordinate-status", "g").exit_code == Status.REFUSED


# -- a command for each item


def test_each_item_runs_its_own_command(shell: Shell) -> None:
    (shell.folder / "list").write_bytes(b"one\n{}\ntwo words\nd\xff\n")
    note = 'printf "%s\\n" "$1" "$KIP30_ITEM" "${KIP30_SHARE-unset}" > "note-$KIP30_GUARD"'
    words = coordinate("--items=list", "--each", "sh", "-c", note, "sh", "<{}>")
    with ended(shell.start(*words)) as runner:
        for _ in range(4):
            await_line(runner, "ended with status 0")
        runner.terminate()
        assert runner.wait(PATIENCE_SECONDS * time_scale()) == 128 + signal.SIGTERM
    notes = {
        parse_guard(file.name.removeprefix("note-")).item: file.read_bytes()
        for file in shell.folder.glob("note-*")
    }
    assert notes == {
        numbered_item(0): b"<one>\none\nunset\n",
        numbered_item(1): b"<{}>\n{}\nunset\n",
        numbered_item(2): b"<two words>\ntwo words\nunset\n",
        numbered_item(3): b"<d\xff>\nd\xff\nunset\n",
    }


def test_few_commands_run_at_once(shell: Shell) -> None:
    words = coordinate("--shards=3", "--each", "--most=2", "sh", "-c", STAY)
    with ended(shell.start(*words)) as runner:
        await_line(runner, "items that wait: 1; at most 2 commands run at once")
        runner.terminate()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [(("--most=2",), "--most needs --each"), (("--each", "--most=0"), "0 is not in the range")],
)
def test_the_number_of_commands_is_checked(
    shell: Shell, options: tuple[str, ...], complaint: str
) -> None:
    result = shell(*coordinate("--shards=1", *options, "true"))
    assert result.exit_code == Status.USAGE
    assert complaint in result.stderr


def test_a_group_of_another_list_refuses_a_runner_of_items(shell: Shell) -> None:
    with ended(shell.start(*coordinate("--shards=1", "sh", "-c", STAY))) as first:
        assert line_of(first.stdout) == "ready"
        second = shell.finish(*coordinate("--shards=2", "--each", "true"))
        assert second.returncode == Status.REFUSED
        first.terminate()


@pytest.mark.case("V15")
def test_the_guard_of_an_item_passes_until_the_item_has_moved(shell: Shell) -> None:
    say = 'echo "$KIP30_GUARD"; exec sleep 600'
    words = coordinate("--shards=2", "--each", "sh", "-c", say)
    with ended(shell.start(*words)) as first:
        former = {guard.item: guard for guard in map(parse_guard, lines(first.stdout, 2))}
        with ended(shell.start(*words)) as second:
            (moved,) = map(parse_guard, lines(second.stdout, 1))
            (stays,) = (guard for guard in former.values() if guard.item != moved.item)
            assert written(shell, str(former[moved.item]), "1") == Status.REFUSED
            assert written(shell, str(stays), "2") == Status.OK
            assert written(shell, str(moved), "3") == Status.OK
            second.terminate()
        first.terminate()


def await_line(runner: "subprocess.Popen[bytes]", text: str) -> None:
    while text not in line_of(runner.stderr):
        assert runner.poll() is None, f"ended without {text!r}"


def lines(stream: Any, count: int) -> list[str]:
    return [line_of(stream) for _ in range(count)]


# -- a list in the store


RUN_ITEM = 'echo "$$ $KIP30_GUARD" > "run-$KIP30_ITEM"; exec sleep 600'


def runs(shell: Shell) -> dict[str, list[str]]:
    """Return the process and the guard of each item's newest command, by item."""
    found = {one.name.removeprefix("run-"): one for one in shell.folder.glob("run-*")}
    return {item: words for item, one in found.items() if (words := one.read_text().split())}


@pytest.mark.case("V16")
def test_another_list_ends_and_starts_only_what_differs(shell: Shell) -> None:
    shell("kv", "set", "list", "a\nb: 1\n\n")
    words = coordinate("--items-key=list", "--each", "sh", "-c", RUN_ITEM)
    with ended(shell.start(*words)) as runner:
        eventually(lambda: runs(shell).keys() == {"a", "b: 1"})
        before = runs(shell)
        shell("kv", "set", "list", "c\nb: 1")
        eventually(lambda: runs(shell).keys() == {"a", "b: 1", "c"})
        eventually(lambda: not psutil.pid_exists(int(before["a"][0])))
        after = runs(shell)
        assert after["b: 1"] == before["b: 1"]
        assert psutil.pid_exists(int(after["b: 1"][0]))
        assert written(shell, before["a"][1], "1") == Status.REFUSED
        assert written(shell, before["b: 1"][1], "2") == Status.OK
        assert written(shell, after["c"][1], "3") == Status.OK
        (line,) = shell("coordinate-status", "g").stdout.splitlines()
        assert line.split("\t")[-1] == "b: 1, c"
        runner.terminate()


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("set", "list", ""), "key 'list': there is nothing to divide"),
        (("set", "list", "b\nb"), "key 'list': an item must not be in the list twice: 'b'"),
        (("delete", "list"), "key 'list' is gone"),
    ],
)
def test_work_goes_on_with_the_last_list_that_can_be_divided(
    shell: Shell, words: tuple[str, ...], complaint: str
) -> None:
    shell("kv", "set", "list", "a")
    command = coordinate("--items-key=list", "sh", "-c", SHOW + "; exec sleep 600")
    with ended(shell.start(*command)) as runner:
        assert line_of(runner.stdout) == "g:a"
        assert shell("kv", *words).exit_code == Status.OK
        await_line(runner, complaint)
        assert shell("kv", "set", "list", "a\nb").exit_code == Status.OK
        assert line_of(runner.stdout) == "g:a b"
        runner.terminate()


def test_a_key_without_a_list_is_refused(shell: Shell) -> None:
    missing = shell.finish(*coordinate("--items-key=list", "true"))
    assert missing.returncode == Status.REFUSED
    assert b"there is no list of items in key 'list'" in missing.stderr
    assert b"`kip30 kv set list - < FILE`" in missing.stderr
    shell("kv", "set", "list", "a\na")
    assert shell.finish(*coordinate("--items-key=list", "true")).returncode == Status.USAGE


def test_a_group_of_a_stored_list_refuses_other_lists(shell: Shell) -> None:
    shell("kv", "set", "list", "0")
    shell("kv", "set", "other", "0")
    with ended(shell.start(*coordinate("--items-key=list", "sh", "-c", STAY))) as first:
        assert line_of(first.stdout) == "ready"
        for words in ("--shards=1", "--items-key=other"):
            second = shell.finish(*coordinate(words, "true"))
            assert second.returncode == Status.REFUSED
            assert b"every process of a group must divide the same list" in second.stderr
        first.terminate()


def test_the_list_that_the_dead_leader_did_not_divide_is_divided(shell: Shell) -> None:
    shell("kv", "set", "list", "a")
    words = coordinate("--items-key=list", "sh", "-c", SHOW + "; exec sleep 600")
    with ended(shell.start(*words)) as first:
        assert line_of(first.stdout) == "g:a"
        with ended(shell.start(*words)) as second:
            await_line(second, "waiting for a share")
            first.send_signal(signal.SIGSTOP)
            shell("kv", "set", "list", "a\nb\nc")
            first.kill()
            eventually(lambda: shares(shell) == ["a, b, c"])
            second.terminate()


def shares(shell: Shell) -> list[str]:
    found = shell("coordinate-status", "g").stdout.splitlines()
    return [line.split("\t")[-1] for line in found if "(gone)" not in line]


# -- guards


def written(shell: Shell, guard: str, value: str) -> int:
    return shell("kv", "set", "--guard", guard, "position", value).exit_code


def test_the_json_of_a_guarded_write_has_the_whole_key(shell: Shell) -> None:
    say = 'echo "$KIP30_GUARD"; exec sleep 600'
    with ended(shell.start(*coordinate("--shards=1", "sh", "-c", say))) as runner:
        guard = line_of(runner.stdout)
        keys = set[str]()
        for words in (("put", "a/b", "1"), ("set", "a/b", "2"), ("update", "a/b", "3")):
            (shown,) = shell.json("kv", *words, "--guard", guard)
            assert shell.json("kv", "get", shown["key"])[0]["version"] == shown["version"]
            keys.add(shown["key"])
        (deleted,) = shell.json("kv", "delete", "a/b", "--guard", guard)
        assert keys == {deleted["key"]} != {"a/b"}
        assert shell("kv", "get", deleted["key"]).exit_code == Status.REFUSED
        runner.terminate()


def test_a_guarded_write_passes_until_the_share_is_anothers(shell: Shell) -> None:
    say = 'echo "$KIP30_GUARD"; exec sleep 600'
    with ended(shell.start(*coordinate("--shards=1", "sh", "-c", say))) as first:
        guard = line_of(first.stdout)
        assert written(shell, guard, "1") == Status.OK
        assert shell("kv", "get", "kip30.group/g/d.position").stdout == "1"
        first.terminate()
        first.wait(PATIENCE_SECONDS * time_scale())
    with ended(shell.start(*coordinate("--shards=1", "sh", "-c", say))) as second:
        newer = line_of(second.stdout)
        assert written(shell, guard, "2") == Status.REFUSED
        assert written(shell, newer, "3") == Status.OK
        for verb in (("update", "position", "4"), ("put", "other", "5"), ("delete", "other")):
            assert shell("kv", verb[0], "--guard", guard, *verb[1:]).exit_code == Status.REFUSED
            assert shell("kv", verb[0], "--guard", newer, *verb[1:]).exit_code == Status.OK
        second.terminate()


@pytest.mark.case("V10")
@pytest.mark.parametrize(
    "text",
    ["", "g", "g:m:1", "g:m:m:x", "g:m:m:-1", "g:m:m:1:x", "g:m:m:x:1", "g:m:m:1:2:3", "g::m:1"],
)
def test_a_text_that_is_no_guard_is_refused_before_anything_is_sent(
    shell: Shell, text: str
) -> None:
    with shell.locked_store():
        result = shell("kv", "put", "--guard", text, "position", "1")
    assert result.exit_code == Status.USAGE
    assert "is not a guard" in result.stderr


def test_a_guard_and_a_fence_exclude_each_other(shell: Shell) -> None:
    result = shell("kv", "put", "--guard=g:m:m:1", "--fence=s:1", "position", "1")
    assert result.exit_code == Status.USAGE


@pytest.mark.case("V10")
def test_a_guard_is_the_text_that_the_command_gets() -> None:
    items = {None: (), numbered_item(0): ("0",), Item(named_topic("a:b"), 0): ("=a:b",)}
    for item, parts in items.items():
        for history, since in ("", "12"), ("0af", "12.0af"):
            guard = ShareGuard("a:b/c", "k 1", "m-0", 12, item, history)
            text = ":".join(map(escape, ("a:b/c", "k 1", "m-0", since, *parts)))
            assert (str(guard), parse_guard(text)) == (text, guard)


def test_a_static_member_returns_to_its_share(shell: Shell) -> None:
    # The share waits as long as a session: longer than a machine with much to do starts a program.
    waits = f"--set=plugin.session.timeout.ms={round(60_000 * time_scale())}"
    words = coordinate(waits, "--shards=2", "--instance=i", "sh", "-c", 'echo "$KIP30_GENERATION"')
    first = shell.finish(*words)
    assert shell.finish(*words).stdout == first.stdout == b"1\n"
    with PluginLocator().startup(shell.properties) as locator:
        found = describe_group(locator, "g")
    assert found is not None
    assert found.generation == 1
