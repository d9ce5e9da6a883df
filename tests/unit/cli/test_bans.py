"""The commands that keep members out: `kip30 group evict`, `group admit`; and who shows bans."""

import sqlite3
from contextlib import closing

import pytest

from kip30 import PluginLocator, UnavailableError
from kip30.cli import group
from kip30.cli._exit_codes import Status
from kip30.cli._schema import SCHEMA
from kip30_conformance.polling import eventually, time_scale

from .shell import SESSION_SECONDS, Shell, ended, line_of
from .test_output import expect_fields

JOIN = ("group", "join", "g", "--set", "plugin.operations=true")


def members(shell: Shell) -> list[str]:
    return [one["id"] for one in shell.json("group", "list", "g")[0]["members"]]


def test_a_member_is_evicted_and_admitted(shell: Shell) -> None:
    with ended(shell.start(*JOIN, "--id", "m1")) as member:
        assert line_of(member.stderr) == "kip30: joined group g as m1"
        refused = shell("group", "evict", "g", "m1")
        assert refused.exit_code == Status.USAGE
        assert "needs --yes" in refused.stderr
        evicted = shell("group", "evict", "g", "m1", "--ban", "1h", "--reason", "hot", "--yes")
        assert (evicted.exit_code, evicted.stderr) == (Status.OK, "")
        assert evicted.stdout.startswith("g\tm1\t2")
        assert evicted.stdout.endswith("\thot\n")
        said = line_of(member.stderr)
        assert said.startswith("kip30: m1 is not a member of g now: banned until 2")
        assert said.endswith(": 'hot', joining again")
        eventually(lambda: not members(shell))
        status = shell("status")
        assert "banned\tm1 in g\n" in status.stdout
        assert status.exit_code == Status.OK
        (found,) = shell.json("status")
        assert [(one["group"], one["id"]) for one in found["banned"]] == [("g", "m1")]
        expect_fields(found, SCHEMA["status"])
        admitted = shell("group", "admit", "g", "m1")
        assert (admitted.exit_code, admitted.stdout) == (Status.OK, "g\tm1\t-\t\t\n")
        assert line_of(member.stderr) == "kip30: joined group g as m1 again"
        assert members(shell) == ["m1"]
        member.terminate()


def test_a_ban_is_shown_although_no_hint_can_be_read(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> list[str]:
        raise UnavailableError("no answer")

    monkeypatch.setattr(group, "member_ids", silent)
    result = shell("group", "evict", "g", "m", "--yes")
    assert (result.exit_code, result.stdout.split("\t")[:2]) == (Status.OK, ["g", "m"])
    assert result.stderr == "kip30: 'g' has no member 'm' now\n"


def test_bans_are_listed_with_and_without_members(shell: Shell) -> None:
    assert (found := shell("group", "bans", "g")).exit_code == Status.OK
    assert found.output == ""
    with PluginLocator().startup(str(shell.properties)) as locator:
        for group, member in (("g", "a\tb"), ("g", "m2"), ("kip30.own", "m")):
            locator.group_membership(group).join(member, "")
        for member in ("a\tb", "absent"):
            assert shell("group", "evict", "g", member, "--yes").exit_code == Status.OK
        assert shell("group", "evict", "only-bans", "m", "--reason", "hot").exit_code == Status.OK
        listed = [line.split("\t") for line in shell("group", "bans", "g").stdout.splitlines()]
        assert [(group, one) for group, one, *_ in listed] == [("g", "a\\tb"), ("g", "absent")]
        records = shell.json("group", "bans", "g")
        for record in records:
            expect_fields(record, SCHEMA["group bans"])
        assert [(one["id"], one["is_member"]) for one in records] == [
            ("a\tb", True),
            ("absent", False),
        ]
        assert shell("groups").stdout == "g\t2\t2\nonly-bans\t0\t1\n"
        assert shell("groups", "--all").stdout == "g\t2\t2\nkip30.own\t1\t0\nonly-bans\t0\t1\n"
        for record in shell.json("groups"):
            expect_fields(record, SCHEMA["groups"])


def test_a_member_that_does_not_obey_wants_attention(shell: Shell) -> None:
    with PluginLocator().startup(str(shell.properties)) as locator:
        locator.group_membership("g").join("m\t1", "")
        shell("group", "evict", "g", "m\t1", "--yes")
        result = shell("status")
        timeout = f"{SESSION_SECONDS * time_scale():g} s"
        assert result.stderr == f"kip30: 1 banned and still a member: looking again in {timeout}\n"
        assert result.exit_code == Status.REFUSED
        attention = f"attention\tm\\t1 is banned from g, and a member for {timeout} or longer: "
        assert attention in result.stdout
        result = shell("status", "--json")
        assert (result.exit_code, result.stderr) == (Status.REFUSED, "")
        (found,) = shell.json_of(result.stdout)
        expect_fields(found, SCHEMA["status"])
        assert found["staying"] == [{"group": "g", "id": "m\t1"}]
        assert [one["is_member"] for one in found["banned"]] == [True]
        shell("group", "admit", "g", "m\t1")
        assert shell("status").exit_code == Status.OK


def test_the_default_is_a_ban_of_five_minutes(shell: Shell) -> None:
    (found,) = shell.json("group", "evict", "g", "m", "--yes")
    expect_fields(found, SCHEMA["group evict"])
    assert found["ban"]["until"] - found["ban"]["at"] == 300
    assert found["is_member"] is False
    (found,) = shell.json("group", "admit", "g", "m")
    expect_fields(found, SCHEMA["group admit"])
    assert found["ban"] is None


def test_an_id_that_no_member_has_is_banned_and_the_nearest_is_named(shell: Shell) -> None:
    with ended(shell.start(*JOIN, "--id", "host-1")) as member:
        assert line_of(member.stderr) == "kip30: joined group g as host-1"
        evicted = shell("group", "evict", "g", "hosr-1")  # it takes nothing: no question
        assert evicted.exit_code == Status.OK
        assert "'g' has no member 'hosr-1' now (did you mean host-1?)" in evicted.stderr
        assert members(shell) == ["host-1"]
        member.terminate()
    late = shell.finish(*JOIN, "--id", "hosr-1")
    assert late.returncode == Status.REFUSED
    assert b"'hosr-1' is banned until 2" in late.stderr
    assert b"`kip30 group admit GROUP ID` lifts the ban" in late.stderr


def test_a_member_whose_record_cannot_be_read_is_a_member(shell: Shell) -> None:
    """As that of a later version; its program obeys, and is to be asked about."""
    with PluginLocator().startup(str(shell.properties)) as locator:
        for member in ("m1", "m2"):
            locator.group_membership("g").join(member, "")
        with closing(sqlite3.connect(shell.folder / "store" / "kip30.db")) as database, database:
            database.execute("UPDATE member SET data = 5 WHERE id = ?", (b"m1",))
        listed = shell("group", "list", "g")
        assert (listed.exit_code, listed.stdout) == (Status.OK, "m2\t\n")
        assert listed.stderr == "kip30: m1 is left out: its record cannot be read\n"
        refused = shell("group", "evict", "g", "m1")
        assert refused.exit_code == Status.USAGE
        assert "needs --yes" in refused.stderr
        evicted = shell("group", "evict", "g", "m1", "--yes")
        assert (evicted.exit_code, evicted.stderr) == (Status.OK, "")
        (found,) = shell.json("group", "bans", "g")
        assert found["is_member"]


def test_an_id_that_is_not_banned_can_be_admitted(shell: Shell) -> None:
    assert shell("group", "admit", "g", "m").exit_code == Status.OK
    assert shell("kv", "list", "kip30.bans").stdout == ""


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("evict", "g"), "ID"),
        (("evict", "g", "m", "--ban", "0s"), "too short"),
        (("evict", "g", "m", "--ban", "400d"), "give up to a year"),
        (("evict", "g", "m", "--ban", "-5min"), "not a time"),
        (("evict", "g", "m", "--ban", "soon"), "not a time"),
        (("evict", "g", "m", "--reason", "x" * 201), "up to 200 characters"),
        (("evict", "g", "m", "--reason", "a\tb"), "can be printed"),
        (("evict", "", "m"), "group is empty"),
        (("evict", "g", ""), "member is empty"),
        (("evict", "kip30.line/s", "m"), "kip30's own groups"),
        (("admit", "kip30.line/s", "m"), "kip30's own groups"),
        (("bans", "kip30.line/s"), "kip30's own groups"),
        (("evict", "é" * 42, "m"), "255 is the limit"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    shell: Shell, words: tuple[str, ...], problem: str
) -> None:
    yes = ("--yes",) if words[0] == "evict" else ()
    result = shell("group", *words, *yes)
    assert result.exit_code == Status.USAGE
    assert problem in result.stderr
    assert shell("kv", "list", "kip30.bans").stdout == ""


def test_a_record_that_cannot_be_read_wants_attention(shell: Shell) -> None:
    shell("kv", "put", "kip30.bans/g", "{}")
    for words in (("evict", "g", "m", "--yes"), ("admit", "g", "m"), ("bans", "g")):
        result = shell("group", *words)
        assert result.exit_code == Status.UNAVAILABLE
        assert "the bans of 'g' cannot be read" in result.stderr
    assert "kip30.bans/g is left out: the bans of 'g' cannot be read" in shell("groups").stderr
    status = shell("status")
    assert status.exit_code == Status.REFUSED
    assert "kip30.bans/g cannot be read" in status.stdout


def test_a_full_record_is_refused(shell: Shell) -> None:
    for number in range(40):
        assert shell("group", "evict", "g", f"m{number}").exit_code == Status.OK
    full = shell("group", "evict", "g", "m40")
    assert full.exit_code == Status.REFUSED
    assert "'g' has 40 bans" in full.stderr
    assert "kip30 group admit g ID" in full.stderr


def test_an_id_with_escapes_is_printed_harmlessly(shell: Shell) -> None:
    result = shell("group", "evict", "g", "a\tb\x1b[2J", "--yes")
    assert result.exit_code == Status.OK
    assert "\x1b" not in result.stdout + result.stderr
    assert "\x1b" not in shell("status").stdout
