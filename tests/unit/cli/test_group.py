import json
import signal

import pytest

from kip30.cli._exit_codes import Status

from .shell import Shell, ended, eventually, line_of


def members(shell: Shell) -> list[dict[str, str]]:
    found: list[dict[str, str]] = shell.json("group", "list", "g")[0]["members"]
    return found


def test_a_group_that_no_member_joined_is_empty(shell: Shell) -> None:
    assert shell("group", "list", "g").output == ""
    assert members(shell) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_member_is_in_until_it_is_interrupted(shell: Shell, number: signal.Signals) -> None:
    with ended(shell.start("group", "join", "g", "--id", "m1", "--data", "tcp://m1")) as member:
        assert line_of(member.stderr) == "kip30: joined group g as m1"
        assert shell("group", "list", "g").stdout == "m1\ttcp://m1\n"
        member.send_signal(number)
        assert member.wait() == 128 + number
        assert member.stderr is not None
        assert member.stderr.read() == b""
    assert members(shell) == []


def test_a_member_reports_its_lost_session_and_its_rejoin(shell: Shell) -> None:
    with ended(shell.start("group", "join", "g", "--id", "m1")) as member:
        assert line_of(member.stderr) == "kip30: joined group g as m1"
        with shell.locked_store():
            assert line_of(member.stderr) == (
                "kip30: m1 is not a member of g now: the session was lost, joining again"
            )
        assert line_of(member.stderr) == "kip30: joined group g as m1 again"
        assert [one["id"] for one in members(shell)] == ["m1"]
        member.terminate()


def test_a_member_needs_no_reader(shell: Shell) -> None:
    with ended(shell.start("group", "join", "g", "--id", "m1")) as member:
        assert member.stdout is not None
        member.stdout.close()
        with ended(shell.start("group", "join", "g", "--id", "m2")) as other:
            eventually(lambda: [one["id"] for one in members(shell)] == ["m1", "m2"])
            assert member.poll() is None
            other.terminate()
        member.terminate()


def test_an_id_that_is_taken_is_refused(shell: Shell) -> None:
    with ended(shell.start("group", "join", "g", "--id", "m1")) as member:
        eventually(lambda: len(members(shell)) == 1)
        late = shell.finish("group", "join", "g", "--id", "m1")
        assert late.returncode == Status.REFUSED
        assert b"choose another --id" in late.stderr
        member.terminate()


def test_a_watch_reports_members_that_join_and_leave(shell: Shell) -> None:
    with ended(shell.start("group", "watch", "g")) as watch:
        with ended(shell.start("group", "join", "g", "--id", "m1", "--data", "a")) as member:
            assert line_of(watch.stdout) == "+\tm1\ta"
            member.terminate()
        assert line_of(watch.stdout) == "-\tm1\t"
        watch.terminate()


def test_a_watch_in_json_begins_with_all_members(shell: Shell) -> None:
    with ended(shell.start("group", "join", "g", "--id", "m1")) as member:
        eventually(lambda: len(members(shell)) == 1)
        with ended(shell.start("group", "watch", "g", "--json")) as watch:
            seen = json.loads(line_of(watch.stdout))
            watch.terminate()
        member.terminate()
    assert seen["joined"] == ["m1"]
    assert seen["members"] == [{"id": "m1", "data": ""}]
