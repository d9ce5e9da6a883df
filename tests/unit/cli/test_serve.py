"""`kip30 serve`, as it is started and ended."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kip30.cli._exit_codes import Status
from kip30_conformance.polling import time_scale
from tests.unit.serving.raw_client import Got, RawClient

from .shell import PATIENCE_SECONDS, Shell, ended, line_of
from .test_doctor import use

SCANNING_LESS = """
from kip30_backends.embedded import EmbeddedBackend
class Few(EmbeddedBackend):
    name = "few"
    capabilities = frozenset()
"""
AT_ANY_PORT = ("serve", "--listen", "127.0.0.1:0")


class Served(NamedTuple):
    """A running server."""

    process: "subprocess.Popen[bytes]"
    host: str
    port: int
    token: str

    def ask(self, path: str, token: str = "", **fields: str) -> Got:
        with RawClient(self.port, "localhost") as client:
            named = {"Authorization": f"Bearer {token or self.token}", **fields}
            return client.ask(path, **named)


@contextmanager
def served(shell: Shell, *words: str, **more: Any) -> Iterator[Served]:
    with ended(shell.start(*(words or AT_ANY_PORT), **more)) as process:
        found = re.fullmatch(r"http://(.+):(\d+)/#token=(\S*)", line_of(process.stdout))
        assert found is not None
        yield Served(process, found[1], int(found[2]), found[3])


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    file.chmod(0o600)
    return file


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_address_has_the_token_and_a_signal_ends_the_server(
    shell: Shell, number: signal.Signals
) -> None:
    shell("kv", "put", "k", "v")
    with served(shell) as server:
        assert server.host == "127.0.0.1"
        assert len(server.token) == 32
        assert server.ask("/").status == 200
        assert server.ask("/api/overview").records[0]["store"] == "embedded"
        assert server.ask("/api/value?key=k").records == [{"key": "k", "value": "v"}]
        assert server.ask("/api/overview", server.token[:-1]).status == 401
        with RawClient(server.port) as viewer:
            field = f"Authorization: Bearer {server.token}"
            viewer.send(f"GET /api/events HTTP/1.1\r\nHost: localhost\r\n{field}\r\n\r\n".encode())
            assert viewer.read(has_body=False).status == 200
            server.process.send_signal(number)
            assert server.process.wait(PATIENCE_SECONDS * time_scale()) == 128 + number


def test_the_token_of_a_file_is_used_and_not_printed(shell: Shell, token_file: Path) -> None:
    with served(shell, *AT_ANY_PORT, "--token-file", str(token_file)) as server:
        assert server.token == ""
        assert server.ask("/api/overview", "0123456789abcdef").status == 200
        assert server.process.stderr is not None
        said = server.process.stderr.readline()  # which comes after the address
        server.process.terminate()
        out, err = server.process.communicate(timeout=PATIENCE_SECONDS * time_scale())
    assert b"0123456789abcdef" not in out + said + err
    assert str(token_file).encode() in said


def test_values_and_hosts_are_as_they_are_asked_for(shell: Shell) -> None:
    shell("kv", "put", "k", "v")
    names = ("--host", "web1.internal", "--host", "web2.internal")
    with served(shell, *AT_ANY_PORT, "--no-values", *names) as server:
        assert server.host == "web1.internal"
        assert server.ask("/api/value?key=k").status == 404
        assert server.ask("/api/keys", Host="WEB2.internal:80").status == 200
        assert server.ask("/api/keys", Host="web3.internal").status == 421


def test_all_addresses_are_shown_as_one_that_can_be_opened(shell: Shell) -> None:
    with served(shell, "serve", "--listen", "0.0.0.0:0") as server:
        assert server.host == "127.0.0.1"
        assert server.ask("/").status == 200


def test_wrong_options_are_refused_at_once(shell: Shell, token_file: Path) -> None:
    token_file.chmod(0o644)
    for words, message in (
        (("--token-file", str(token_file)), "chmod 600"),
        (("--listen", "a:b"), "no address"),
        (("--host", "a/b"), "no name of a host"),
    ):
        result = shell("serve", *words)
        assert (result.exit_code, result.stdout) == (Status.USAGE, "")
        assert message in result.stderr
    missing = shell("serve", "--token-file", "missing")
    assert missing.exit_code == Status.SYSTEM
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        result = shell("serve", "--listen", str(taken.getsockname()[1]))
    assert result.exit_code == Status.SYSTEM
    assert "cannot listen" in result.stderr


def test_a_store_that_cannot_be_scanned_is_refused_at_once(shell: Shell) -> None:
    use(shell, "few:Few", SCANNING_LESS)
    result = shell("serve", "--listen", "0")
    assert (result.exit_code, result.stdout) == (Status.UNSUPPORTED, "")
    assert "'few' does not offer scanning" in result.stderr


def test_a_runner_loads_nothing_of_the_page() -> None:
    program = (
        "import sys, kip30.cli.run, kip30.cli._run_health;"
        "print([one for one in sys.modules if one.startswith('kip30.serving')])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    loaded = done.stdout.decode()
    assert "kip30.serving.health" in loaded
    for name in ("page_server", "live_overview", "store_details", "access_token", "metrics"):
        assert name not in loaded
