import json
import signal
import socket

from kip30.cli._exit_codes import Status

from .shell import Shell, ended, eventually, line_of

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
