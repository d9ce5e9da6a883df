"""Requests of a client to a server without a session, and their end when the client closes."""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from kip30_backends.zookeeper.client.four_letter_words import FourLetterWords
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open, connections_to
from tests.unit.zookeeper.balancer import Balancer


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Yield a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_close_does_not_wait_for_an_answer_that_never_comes(
    open_client: Open, ensemble: Ensemble, silent: socket.socket
) -> None:
    """The session is that of a real server; the request for its mode reaches a silent one."""
    server, port = ensemble.nodes[0].port, silent.getsockname()[1]
    before = set(threading.enumerate())
    with closing(Balancer([server, port])) as balancer:
        client = open_client(**{"zookeeper.connect": balancer.address})
        eventually(lambda: balancer.taken > 1)
        asking = [one for one in _asking() if one not in before]
        assert asking, "the server is asked on a thread of its own"
        client.close()
        assert not any(one.is_alive() for one in asking)


def test_a_request_that_is_cut_has_no_answer(silent: socket.socket) -> None:
    words, answers = FourLetterWords(lambda: _connection(silent)), []
    asking = threading.Thread(target=lambda: answers.append(words.status()))
    asking.start()
    taken, _ = silent.accept()
    with taken:
        assert taken.recv(4) == b"srvr"
        words.cut()
        asking.join()
    assert answers == [{}]


def test_no_request_is_sent_after_the_cut(silent: socket.socket) -> None:
    words = FourLetterWords(lambda: _connection(silent))
    words.cut()
    assert words.status() == {}
    silent.settimeout(0)
    with pytest.raises(BlockingIOError):
        silent.accept()


def test_a_forked_child_keeps_no_connection_of_its_parent(silent: socket.socket) -> None:
    """Otherwise a server would not see the connection end while the child lives."""
    words, opened = FourLetterWords(lambda: opened), _connection(silent)
    asking = threading.Thread(target=words.status)
    asking.start()
    eventually(lambda: bool(words._open))
    child = os.fork()
    if child == 0:
        words.abandon()
        os._exit(0 if opened.fileno() == -1 else 1)
    _, status = os.waitpid(child, 0)
    words.cut()
    asking.join()
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_forked_child_keeps_no_connection_of_a_client(
    open_client: Open, ensemble: Ensemble, silent: socket.socket
) -> None:
    """Neither that of the session nor that of the request for the mode."""
    ports = [ensemble.nodes[0].port, silent.getsockname()[1]]
    with closing(Balancer(ports)) as balancer:
        open_client(**{"zookeeper.connect": balancer.address})
        port = int(balancer.address.rpartition(":")[2])
        eventually(lambda: connections_to(port) == len(ports))
        child = os.fork()
        if child == 0:
            os._exit(connections_to(port))
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


def _asking() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "kip30-zookeeper-mode"]


def _connection(server: socket.socket) -> socket.socket:
    return socket.create_connection(server.getsockname())
