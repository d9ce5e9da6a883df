import socket
import time

import pytest

from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Counts, Ensemble, Link, Node

from .talking import PATIENCE, QUESTION, SILENCE, talk

pytestmark = pytest.mark.fault


def test_carries(link: Link) -> None:
    with talk(link) as connection:
        assert connection.is_answered()
    counted = link.counted()
    assert (counted.connections, counted.resets, counted.dropped) == (1, 0, 0)
    assert counted.to_server == len(QUESTION)
    assert counted.to_client > 0


def test_counts_round_trips(link: Link) -> None:
    with talk(link) as connection:
        for _ in range(5):
            assert connection.is_answered()
        assert link.round_trips() == 5
        connection.ask()
        connection.ask()
        heard = b""
        while heard.count(b"etcdserver") < 2:
            heard += connection.hear()
    assert link.round_trips() in {6, 7}


def test_cut_is_silent_and_healed_by_a_reset(link: Link) -> None:
    with talk(link) as connection:
        assert connection.is_answered()
        before = link.counted()
        link.cut()
        connection.ask()
        assert connection.is_silent()
        since = link.counted() - before
        assert since == Counts(dropped_to_server=len(QUESTION))
        link.heal()
        with pytest.raises(ConnectionResetError):
            connection.hear()
    with talk(link) as connection:
        assert connection.is_answered()


def test_cut_does_not_reset_an_idle_connection(link: Link) -> None:
    with talk(link) as connection:
        assert connection.is_answered()
        link.cut()
        link.heal()
        assert connection.is_answered()
    assert link.counted().resets == 0


def test_cut_accepts_in_silence(link: Link) -> None:
    link.cut()
    with talk(link) as connection:
        connection.ask()
        assert connection.is_silent()
        assert link.counted().dropped_to_server == len(QUESTION)
        link.heal()
        with pytest.raises(ConnectionResetError):
            connection.hear()


def test_cut_hides_the_end_of_the_other_side(link: Link, etcd: Ensemble) -> None:
    with talk(link) as connection:
        assert connection.is_answered()
        link.cut()
        etcd.nodes[0].restart()
        assert connection.is_silent()
        link.heal()
        with pytest.raises(ConnectionResetError):
            connection.hear()
    etcd.await_ready()


def test_swallowed_answers_are_lost_but_requests_are_not(link: Link) -> None:
    with talk(link) as connection:
        link.swallow_answers()
        connection.ask()
        assert connection.is_silent()
        counted = link.counted()
        assert counted.to_server == len(QUESTION)
        assert counted.dropped_to_client > 0
        assert counted.dropped_to_server == 0
        link.heal()
        with pytest.raises(ConnectionResetError):
            connection.hear()


@pytest.mark.parametrize("toward", ["client", "server"])
def test_half_open_holds_and_lets_go(link: Link, toward: str) -> None:
    with talk(link) as connection:
        assert connection.is_answered()
        before = link.counted()
        link.half_open("client" if toward == "client" else "server")
        connection.ask()
        assert connection.is_silent()
        since = link.counted() - before
        assert since.held > 0
        assert since.to_server == (len(QUESTION) if toward == "client" else 0)
        link.heal()
        assert b"etcdserver" in connection.hear()
    assert link.counted().resets == 0


def test_refused_by_the_kernel(link: Link) -> None:
    with talk(link) as connection:
        assert connection.is_answered()
        link.refuse()
        with pytest.raises(ConnectionResetError):
            connection.hear()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", link.ports[0]), PATIENCE * time_scale())
    link.heal()
    with talk(link) as connection:
        assert connection.is_answered()
    assert link.counted().resets == 1


def test_reset_is_for_what_is_open(link: Link) -> None:
    with talk(link) as connection:
        assert connection.is_answered()
        link.reset()
        with pytest.raises(ConnectionResetError):
            connection.hear()
    with talk(link) as connection:
        assert connection.is_answered()
    assert link.counted().resets == 1


def test_truncated_answer(link: Link) -> None:
    with talk(link) as connection:
        assert connection.is_answered()
        whole = link.counted().to_client
        link.truncate()
        connection.ask()
        eventually(lambda: link.counted().resets, what="a reset")
    assert link.counted().to_client == whole + whole // 2


def test_delay_there_and_back(link: Link) -> None:
    with talk(link) as connection:
        assert connection.is_answered()
        link.delay(0.1, 0.02)
        started = time.monotonic()
        assert connection.is_answered()
        assert time.monotonic() - started >= 2 * 0.08
        link.heal()
        started = time.monotonic()
        assert connection.is_answered()
        assert time.monotonic() - started < PATIENCE * time_scale()


def test_bandwidth(link: Link) -> None:
    with talk(link) as connection:
        assert connection.is_answered()
        answer = link.counted().to_client
        link.bandwidth(1000)
        started, heard = time.monotonic(), b""
        connection.ask()
        while len(heard) < answer:
            heard += connection.hear()
        assert time.monotonic() - started >= (len(QUESTION) + answer) / 1000


def test_one_node_of_several(three: Ensemble) -> None:
    with three.link() as link:
        link.refuse(nodes=[1])
        for node in (0, 2):
            with talk(link, node):
                pass
        with pytest.raises(ConnectionRefusedError), talk(link, 1):
            pass
        eventually(lambda: [one.connections for one in link.counted_by_node()] == [1, 0, 1])


def test_a_dead_node_refuses(link: Link, etcd: Ensemble) -> None:
    etcd.nodes[0].kill()
    with pytest.raises(ConnectionRefusedError), talk(link):
        pass
    etcd.nodes[0].restart()
    etcd.await_ready()
    with talk(link) as connection:
        assert connection.is_answered()


def test_links_are_separate_and_end(etcd: Ensemble, link: Link) -> None:
    before = etcd.open_links()
    with etcd.link() as other, talk(other) as connection:
        link.cut()
        assert connection.is_answered()
        assert etcd.open_links() == before + 1
        port = other.ports[0]
    assert etcd.open_links() == before
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), PATIENCE * time_scale())


def test_a_stopped_node_is_silent(etcd: Ensemble, link: Link) -> None:
    node: Node = etcd.nodes[0]
    with talk(link) as connection:
        assert connection.is_answered()
        with etcd.frozen():
            assert node.is_alive()
            assert not node.is_ready()
            connection.ask()
            assert connection.is_silent(SILENCE)
        assert b"etcdserver" in connection.hear()
    eventually(node.is_ready)
