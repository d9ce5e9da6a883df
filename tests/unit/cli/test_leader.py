import json
import os
import signal
import socket
import sqlite3
from contextlib import ExitStack, closing

import pytest

from kip30 import PluginLocator
from kip30.cli._exit_codes import Status
from kip30.cli._schema import SCHEMA
from kip30.codecs import BYTES
from kip30.config import Properties, Value, load

from .shell import Shell, ended, eventually, line_of
from .test_doctor import use
from .test_output import expect_fields

LINELESS = """
from kip30_backends.embedded import EmbeddedBackend

class Lineless(EmbeddedBackend):
    name = "lineless"
    def __init__(self, context, settings):
        super().__init__(context, settings)
        self.election.forms_line = False
"""
LEADING = ("run", "--service", "s", "--id", "n1", "--quiet", "--", "sleep", "60")


def test_a_service_without_a_leader_is_refused(shell: Shell) -> None:
    result = shell("leader", "s")
    assert (result.exit_code, result.stdout) == (Status.REFUSED, "")
    assert "'s' has no leader" in result.stderr
    result = shell("leader", "s", "--json")
    assert (result.exit_code, result.stderr) == (Status.REFUSED, "")
    assert json.loads(result.stdout) == {"service": "s", "leader": None}


def test_a_leader_has_an_id_an_epoch_and_data(shell: Shell) -> None:
    with ended(shell.start(*LEADING)) as runner:
        eventually(lambda: shell("leader", "s").exit_code == Status.OK)
        assert shell("leader", "s").stdout == "n1\t1\t\n"
        expected = {"service": "s", "leader": {"id": "n1", "epoch": 1, "data": ""}}
        assert shell.json("leader", "s") == [expected]
        runner.terminate()


def test_a_candidate_is_called_after_host_and_process(shell: Shell) -> None:
    with ended(shell.start("run", "--service", "s", "--", "sleep", "60")) as runner:
        eventually(lambda: shell("leader", "s").exit_code == Status.OK)
        assert (
            shell.json("leader", "s")[0]["leader"]["id"] == f"{socket.gethostname()}-{runner.pid}"
        )
        runner.terminate()


def test_a_watch_tells_of_every_leader_and_of_none(shell: Shell) -> None:
    with ended(shell.start("leader", "s", "--watch", "--json")) as watch:
        seen = [json.loads(line_of(watch.stdout))]
        with ended(shell.start(*LEADING)) as runner:
            seen.append(json.loads(line_of(watch.stdout)))
            runner.terminate()
        seen.append(json.loads(line_of(watch.stdout)))
        n1 = {"id": "n1", "epoch": 1, "data": ""}
        assert [one["leader"] for one in seen] == [None, n1, None]
        watch.send_signal(signal.SIGINT)


def test_a_watch_prints_a_dash_while_the_service_has_no_leader(shell: Shell) -> None:
    with ended(shell.start("leader", "s", "--watch")) as watch:
        assert line_of(watch.stdout) == "-"
        watch.send_signal(signal.SIGINT)


# -- the line of candidates


def test_the_line_follows_the_leader_in_its_order(shell: Shell) -> None:
    properties = str(shell.properties)
    with PluginLocator().startup(properties) as one, PluginLocator().startup(properties) as other:
        one.leader_election("s").nominate("n1", "data")
        # Ids that are in another order than the places were taken.
        for place in ("b" * 16, "c" * 16, "a" * 16):
            one.group_membership("kip30.candidates/s").join(place, "")
        assert not other.leader_election("s").nominate("n2", "")
        eventually(lambda: len(shell("leader", "s", "-a").stdout.splitlines()) == 5)
        shown = [line.split("\t") for line in shell("leader", "s", "-a").stdout.splitlines()]
        (found,) = shell.json("leader", "s", "--all")
    assert shown[0] == ["leader", "n1", "1", "", "", "", ""]
    assert [row[0] for row in shown[1:]] == ["1", "2", "3", "4"]
    assert shown[4][1:5] == ["n2", "-", socket.gethostname(), str(os.getpid())]
    expect_fields(found, SCHEMA["leader --all"])
    assert [place["id"] for place in found["line"]][:3] == ["b" * 16, "c" * 16, "a" * 16]
    assert found["line"][0]["candidate"] is None
    assert found["line"][0]["priority"] is None
    assert (found["line"][3]["candidate"], found["line"][3]["readable"]) == ("n2", True)


def wait_for_lines(shell: Shell, number: int) -> None:
    eventually(lambda: len(shell("leader", "s", "-a").stdout.splitlines()) == number)


def test_the_line_shows_priorities_and_does_not_order_by_them(shell: Shell) -> None:
    with ExitStack() as clients:
        for place, priority in enumerate((0, 0, 100)):
            obeying = Properties({"plugin.operations": Value("true", "test")})
            client = clients.enter_context(
                PluginLocator().startup(load(shell.properties) | obeying)
            )
            client.leader_election("s").nominate(f"n{place}", "", priority=priority)
            wait_for_lines(shell, place + 1)
        shown = [line.split("\t") for line in shell("leader", "s", "-a").stdout.splitlines()]
        (found,) = shell.json("leader", "s", "--all")
        groups = shell("groups").stdout
    assert [(row[1], row[6]) for row in shown] == [("n0", ""), ("n1", "0"), ("n2", "100")]
    assert [place["priority"] for place in found["line"]] == [0, 100]
    assert groups == ""


def test_a_line_without_a_leader_is_shown_and_refused(shell: Shell) -> None:
    with PluginLocator().startup(str(shell.properties)) as locator:
        locator.group_membership("kip30.candidates/s").join("a" * 16, "")
        result = shell("leader", "s", "-a")
        assert (result.exit_code, result.stdout) == (Status.REFUSED, "1\t-\t-\t\t\t\t\n")
        assert "'s' has no leader" in result.stderr


def test_an_unreadable_place_has_no_number(shell: Shell) -> None:
    with PluginLocator().startup(str(shell.properties)) as locator:
        for place in ("a" * 16, "b" * 16):
            locator.group_membership("kip30.candidates/s").join(place, "")
        with closing(sqlite3.connect(shell.folder / "store" / "kip30.db")) as database, database:
            changed = database.execute("UPDATE member SET data = 5 WHERE id = ?", (b"a" * 16,))
            assert changed.rowcount == 1
        shown = [line.split("\t")[:2] for line in shell("leader", "s", "-a").stdout.splitlines()]
        found = json.loads(shell("leader", "s", "-a", "--json").stdout)
    assert shown == [["1", "-"], ["?", "-"]]
    assert [(one["id"], one["readable"]) for one in found["line"]] == [
        ("b" * 16, True),
        ("a" * 16, False),
    ]


@pytest.mark.parametrize("since", ["NaN", "1e999"])
def test_a_time_that_is_no_number_of_json_is_null(shell: Shell, since: str) -> None:
    place = f'{{"candidate": "c", "host": "h", "pid": 1, "since": {since}}}'
    with PluginLocator().startup(str(shell.properties)) as locator:
        locator.group_membership("kip30.candidates/s", BYTES).join("a" * 16, place.encode())
        shown = shell("leader", "s", "-a").stdout
        printed = shell("leader", "s", "-a", "--json").stdout
    assert shown.startswith("1\tc\t-\th\t1\t")
    assert "NaN" not in printed
    assert "Infinity" not in printed
    (one,) = json.loads(printed)["line"]
    assert (one["candidate"], one["since"]) == ("c", None)


def test_a_store_without_lines_says_so(shell: Shell) -> None:
    use(shell, "lineless:Lineless", LINELESS)
    with PluginLocator().startup(str(shell.properties)) as locator:
        locator.leader_election("s").nominate("n1", "")
        result = shell("leader", "s", "-a")
        assert (result.exit_code, result.stdout) == (Status.OK, "leader\tn1\t1\t\t\t\t\n")
        assert "candidates form no line on lineless" in result.stderr
        assert shell.json("leader", "s", "-a")[0]["line"] is None


def test_the_line_cannot_be_watched(shell: Shell) -> None:
    result = shell("leader", "s", "--all", "--watch")
    assert (result.exit_code, result.stdout) == (Status.USAGE, "")
