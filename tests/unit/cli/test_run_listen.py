"""``kip30 run --listen``, as balancers and probes see it."""

import re
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import pytest

from kip30.cli._exit_codes import Status
from kip30_conformance.clients.process_stop import ProcessStop
from kip30_conformance.polling import time_scale
from tests.unit.serving.raw_client import Got, RawClient

from .shell import PATIENCE_SECONDS, Shell, ended, eventually, line_of

STUCK = """
import os, sys, time
from kip30.runner.guarded_run import Supervision
from kip30.serving import health

def look(supervision, look=Supervision.look):
    while os.path.exists("stuck"):
        time.sleep(0.01)
    look(supervision)

Supervision.look = look
health.LEAST_SILENCE_SECONDS = 0.0
sys.argv[0] = "kip30"
from kip30_command import main
main()
"""
"""The program, which looks after no command while there is a file ``stuck``."""
SLEEP = ("sleep", "1000")
LISTEN = ("--listen", "127.0.0.1:0")
HOSTS = {"::1": "[::1]"}


class Listening(NamedTuple):
    """A runner, and where it listens."""

    process: "subprocess.Popen[bytes]"
    port: int
    host: str = "127.0.0.1"

    def ask(self, path: str) -> Got:
        with RawClient(self.port, self.host) as client:
            return client.ask(path, Host=HOSTS.get(self.host, self.host))

    def leads(self) -> bool:
        return self.ask("/leader").status == 200

    def statuses(self) -> tuple[int, ...]:
        return tuple(
            self.ask(f"/{path}").status for path in ("leader", "replica", "readiness", "liveness")
        )


LEADER, REPLICA, NEITHER = (200, 503, 200, 200), (503, 200, 200, 200), (503, 503, 503, 200)


@contextmanager
def listening(
    shell: Shell,
    candidate: str,
    *words: str,
    listen: tuple[str, ...] = LISTEN,
    **more: Any,
) -> Iterator[Listening]:
    command = ("run", "--service", "s", "--id", candidate, *listen, *(words or ("--", *SLEEP)))
    with ended(shell.start(*command, **more)) as process:
        found = re.fullmatch(r"kip30: health at http://(.+):(\d+)/", line_of(process.stderr))
        assert found is not None
        yield Listening(process, int(found[2]), found[1].strip("[]"))
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)


def test_a_leader_and_one_that_waits_are_told_apart(shell: Shell) -> None:
    with ExitStack() as runners:
        first = runners.enter_context(listening(shell, "n1"))
        eventually(first.leads)
        second = runners.enter_context(listening(shell, "n2"))
        eventually(lambda: second.statuses() == REPLICA)
        assert first.statuses() == LEADER
        (told,) = first.ask("/service").records
        assert (told["service"], told["candidate"], told["epoch"]) == ("s", "n1", 1)
        assert (told["role"], told["store"]) == ("leader", "embedded")
        (told,) = second.ask("/service").records
        assert (told["candidate"], told["role"], told["epoch"]) == ("n2", "replica", None)
        assert b'kip30_leader{store="embedded",service="s"} 1' in first.ask("/metrics").body
        first.process.terminate()
        eventually(lambda: second.statuses() == LEADER)
        assert first.process.wait(PATIENCE_SECONDS * time_scale()) == 128 + signal.SIGTERM


def test_a_runner_that_measures_nothing_has_no_metrics(shell: Shell) -> None:
    off = ("--set", "plugin.metrics=false", "--", *SLEEP)
    with listening(shell, "n1", *off) as runner:
        eventually(runner.leads)
        assert runner.ask("/metrics").status == 404


def test_a_leader_that_is_asked_to_end_leads_until_its_command_has_ended(shell: Shell) -> None:
    command = "trap 'echo asked' TERM; echo ready; until [ -e go ]; do sleep 0.02; done"
    with listening(shell, "n1", "--grace", "1000", "sh", "-c", command) as runner:
        assert line_of(runner.process.stdout) == "ready"
        runner.process.terminate()
        assert line_of(runner.process.stdout) == "asked"
        assert runner.statuses() == LEADER
        (shell.folder / "go").touch()
        assert runner.process.wait(PATIENCE_SECONDS * time_scale()) == 0
        with pytest.raises(ConnectionRefusedError):
            runner.leads()


def test_a_leader_whose_store_is_silent_past_the_lease_leads_no_longer(shell: Shell) -> None:
    with listening(shell, "n1") as runner:
        eventually(runner.leads)
        with shell.locked_store():  # which can still be read
            eventually(lambda: runner.statuses()[::3] == (503, 200))
            (told,) = runner.ask("/service").records
            assert (told["epoch"], told["seconds_left"]) == (None, None)
            assert told["role"] != "leader"
            assert told["last_seen"] is not None
        eventually(lambda: runner.statuses() == LEADER)
        assert runner.ask("/service").records[0]["epoch"] > 1


def test_a_leader_that_was_stopped_does_not_claim_to_lead_when_it_goes_on(shell: Shell) -> None:
    """It finds the request of a balancer when it goes on, and its lease is over."""
    with listening(shell, "n1") as first, listening(shell, "n2") as second, ExitStack() as clients:
        eventually(lambda: first.leads() or second.leads())
        stopped, other = (first, second) if first.leads() else (second, first)
        eventually(lambda: other.statuses() == REPLICA)
        store = {"plugin.embedded.directory": shell.folder / "store"}
        ProcessStop({"plugin.backend": "embedded", **store}).stop(stopped.process.pid)
        waiting = [clients.enter_context(RawClient(stopped.port)) for _ in range(5)]
        for client in waiting:
            client.send(b"GET /leader HTTP/1.1\r\nHost: localhost\r\n\r\n")
        eventually(other.leads)
        stopped.process.send_signal(signal.SIGCONT)
        assert [client.read().status for client in waiting] == [503] * 5


def test_before_the_store_is_reached_the_runner_is_alive_and_not_ready(shell: Shell) -> None:
    shell.configure(plugin_connect_timeout_ms=300)
    with shell.locked_store(), listening(shell, "n1", "echo", "ran") as runner:
        eventually(lambda: "waiting for the store" in line_of(runner.process.stderr))
        assert runner.statuses() == NEITHER
        (told,) = runner.ask("/service").records
        assert (told.pop("service"), told.pop("candidate")) == ("s", "n1")
        assert set(told.values()) == {None}
        runner.process.terminate()


def test_a_runner_whose_loop_is_stuck_is_not_alive(shell: Shell) -> None:
    shell.configure(plugin_session_timeout_ms=500)
    with listening(shell, "n1", program=("-c", STUCK)) as runner:
        eventually(runner.leads)
        assert runner.ask("/liveness").status == 200
        (shell.folder / "stuck").touch()
        eventually(lambda: runner.ask("/liveness").status == 503)
        (shell.folder / "stuck").unlink()
        eventually(lambda: runner.ask("/liveness").status == 200)


def test_an_address_in_use_is_an_error_before_the_nomination(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        words = ("run", "--service", "s", "--listen", address, "echo", "ran")
        result = shell.finish(*words)
    assert (result.returncode, result.stdout) == (Status.SYSTEM, b"")
    words_said = f"kip30: cannot listen at {address}: Address already in use: choose another"
    assert result.stderr.decode().startswith(words_said)
    assert shell.finish("run", "--service", "s", "sh", "-c", "echo $KIP30_EPOCH").stdout == b"1\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--listen", "127.0.0.1"), b"is no address to listen at"),
        (("--listen", ":8008"), b"0.0.0.0 for all addresses of this machine"),
        (("-n", "--listen", "x:y"), b"is no address to listen at"),
        (("--listen", "127.0.0.1:0", "--listen-host", "a:80"), b"is no name of a host"),
        (("--listen-host", "web1"), b"--listen-host is for --listen"),
    ],
)
def test_a_wrong_address_is_refused_before_anything_is_opened(
    shell: Shell, words: tuple[str, ...], said: bytes
) -> None:
    result = shell.finish("run", "--service", "s", *words, "echo", "ran")
    assert (result.returncode, result.stdout) == (Status.USAGE, b"")
    assert said in result.stderr
    assert not (shell.folder / "store").exists()


def test_a_dry_run_shows_the_address_and_takes_it_from_none(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        result = shell.finish("run", "-n", "--service", "s", "--listen", address, "true")
    assert result.returncode == Status.OK
    assert f"listen\t{address}\n" in result.stdout.decode()


def test_the_command_inherits_no_socket(shell: Shell) -> None:
    show = "ls -l /proc/self/fd; echo end; exec sleep 1000"
    with listening(shell, "n1", "sh", "-c", show) as runner, RawClient(runner.port) as client:
        assert client.ask("/liveness").status == 200
        shown = list(iter(lambda: line_of(runner.process.stdout), "end"))
        assert len(shown) > 3
        assert not [line for line in shown if "socket" in line]


@pytest.mark.skipif(not socket.has_ipv6, reason="has no IPv6")
def test_an_address_of_ipv6(shell: Shell) -> None:
    with listening(shell, "n1", listen=("--listen", "[::1]:0")) as runner:
        assert runner.host == "::1"
        eventually(runner.leads)


def test_a_given_name_of_the_host_is_answered(shell: Shell) -> None:
    listen = (*LISTEN, "--listen-host", "web1", "--listen-host", "web1.internal")
    with listening(shell, "n1", listen=listen) as runner, RawClient(runner.port) as client:
        for host, status in (("web1", 200), ("WEB1.internal:80", 200), ("localhost", 200)):
            assert client.ask("/", Host=host).status == status
        assert client.ask("/", Host="web2").status == 421


def test_a_thousand_clients_that_hang_delay_neither_the_runner_nor_its_end(shell: Shell) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2048)), hard))
    with listening(shell, "n1") as runner, ExitStack() as clients:
        eventually(runner.leads)
        for number in range(1000):
            client = clients.enter_context(RawClient(runner.port))
            client.send(b"GET /leader HTTP"[: number % 16])
            if number % 100 == 0:
                assert runner.statuses() == LEADER
        assert runner.ask("/service").records[0]["epoch"] == 1
        runner.process.terminate()
        assert runner.process.wait(PATIENCE_SECONDS * time_scale()) == 128 + signal.SIGTERM
