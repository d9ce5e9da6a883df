"""The process that owns a connection which a proxy between servers has accepted."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kip30_conformance.servers.socket_owners import holds, inode

CALLER = (
    "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); input()"
)


@pytest.fixture
def gate() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        yield listening


@pytest.mark.parametrize(
    ("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")]
)
def test_own_connection(gate: socket.socket, family: int, host: str) -> None:
    with socket.socket(family) as calling:
        calling.connect((host, gate.getsockname()[1]))
        with gate.accept()[0] as called:
            number = inode(called.getpeername(), called.getsockname())
            assert number == os.fstat(calling.fileno()).st_ino
            assert holds(os.getpid(), number)


def test_that_of_another_process(gate: socket.socket) -> None:
    with ExitStack() as stack:
        words = [sys.executable, "-c", CALLER, str(gate.getsockname()[1])]
        other = stack.enter_context(subprocess.Popen(words, stdin=subprocess.PIPE))
        called = stack.enter_context(gate.accept()[0])
        number = inode(called.getpeername(), called.getsockname())
        assert holds(other.pid, number)
        assert not holds(os.getpid(), number)
        other.kill()
        other.wait()
        assert not holds(other.pid, number)


def test_one_that_is_gone(gate: socket.socket) -> None:
    with socket.create_connection(gate.getsockname()) as calling:
        called = gate.accept()[0]
        ends = calling.getsockname(), calling.getpeername()
    called.close()
    assert inode(*ends) == 0
    assert inode(("127.0.0.1", 1), gate.getsockname()) == 0
