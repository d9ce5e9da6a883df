"""A session that ends while requests are under way, and what must not be sent in the next one."""

import errno
import logging
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pytest
from kazoo.security import ACL, Id

from kip30 import (
    GroupMembership,
    Member,
    MemberExistsError,
    OutcomeUnknownError,
    PluginLocator,
)
from kip30.config import Written
from kip30.driver.records import new_nonce
from kip30_backends.zookeeper import ZookeeperBackend
from kip30_backends.zookeeper.client.kazoo_setup import SessionIdentity
from kip30_backends.zookeeper.client.messages import Close, Create, Request
from kip30_backends.zookeeper.resources import Resources
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open

_ENTRIES = 5_000
_SLOW_REQUESTS = 8
_ROUNDS = 100
_SEEN = 4
_FAILURES = 3
_PATIENT: dict[str, Written] = {
    "plugin.operation.timeout.ms": 20_000,
    "plugin.session.timeout.ms": 20_000,
}


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("zookeeper", folder=tmp_path_factory.mktemp("sessions")) as servers:
        yield servers


def test_requests_on_a_connection_to_an_ended_session(
    open_client: Open, ensemble: Ensemble, caplog: pytest.LogCaptureFixture
) -> None:
    """The server keeps a connection open that took the session up while its end was queued."""
    caplog.set_level(logging.INFO, "kip30_backends.zookeeper.client.session_connection")
    client = open_client(**_PATIENT)
    other = open_client(**_PATIENT).group_membership("g")
    group, storage = client.group_membership("g"), client.storage()
    group.join("m", "0")
    writes: list[Callable[[str], object]] = [
        lambda text: group.update("m", text),
        lambda text: storage.set(text, text),
    ]
    for number in range(_ROUNDS):
        _end_session_slowly(ensemble, _identity(client))
        for write in writes:
            # A busy server may close the next connection, too, and the answer is lost.
            eventually(partial(_is_acknowledged, partial(write, f"{number}")))
        writes.reverse()
        assert other.membership() == {"m": f"{number}"}
        if caplog.text.count("the session is over, or the credentials have changed") >= _SEEN:
            return
    pytest.fail("the server never refused a request")


def _is_acknowledged(write: Callable[[], object]) -> bool:
    try:
        write()
    except OutcomeUnknownError as error:
        if "ConnectionLoss" not in str(error):  # the outcome of a refused request is known
            raise
        return False
    return True


def test_a_request_that_waited_is_not_sent_in_the_next_session(open_client: Open) -> None:
    """By then the path may lead to the node of another client, at the same version."""
    client, other = open_client(), open_client()
    resources, successor = _resources(client), other.group_membership("g")
    claim = client.backend.membership.claim("g", "m", new_nonce(), b"").result()
    lost = resources.sessions.current
    assert lost is not None
    resources.outbox.attach(None)
    released = client.backend.membership.release("g", claim)
    resources.sessions.close_former(_identity(client))
    member = eventually(lambda: _joined(successor), what="the id is free")
    # A connection that came back before the session was closed may have taken the request along.
    with suppress(OutcomeUnknownError):
        released.result(10)
    eventually(lambda: resources.sessions.current is not lost, what="there is another session")
    assert successor.membership_list() == {"m"}
    assert member.is_valid()


def test_a_member_waits_for_the_end_of_its_former_session(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers may keep a session that one of them, their leader until then, has called expired."""
    client = open_client(**{"plugin.session.timeout.ms": 4_000})
    group, sessions = client.group_membership("g"), _resources(client).sessions
    evicted, rejoined = Recorder[Member](), Recorder[Member]()
    first = group.join("m", "", on_evicted=evicted, on_rejoined=rejoined)
    monkeypatch.setattr(sessions, "close_former", lambda _: None)
    lost = sessions.current
    assert lost is not None
    sessions._lose(lost, "as if it had expired")
    rejoined.expect_count(1, within=60)
    assert not evicted.events
    assert not first.is_valid()
    assert group.membership_list() == {"m"}


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, "Too many open files"), MemoryError()])
def test_a_session_is_replaced_although_resources_ran_out(
    open_client: Open, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    client = open_client()
    group, sessions = client.group_membership("g"), _resources(client).sessions
    rejoined = Recorder[Member]()
    group.join("m", "", on_rejoined=rejoined)
    lost = sessions.current
    assert lost is not None
    failures = [error] * _FAILURES
    make = socket.socketpair

    def make_or_fail() -> tuple[socket.socket, socket.socket]:
        if failures:
            raise failures.pop()
        return make()

    monkeypatch.setattr(socket, "socketpair", make_or_fail)
    sessions._lose(lost, "as if it had expired")
    rejoined.expect_count(1, within=30)
    assert not failures


def _joined(group: GroupMembership[str]) -> Member | None:
    try:
        return group.join("m", "")
    except MemberExistsError:
        return None


def _end_session_slowly(ensemble: Ensemble, identity: SessionIdentity) -> None:
    """Let the server end a session only after other requests, and do not wait for it."""
    host, port = ensemble.settings()["zookeeper.connect"].split(":")
    address = host, int(port)
    with socket.create_connection(address) as crowd, socket.create_connection(address) as sock:
        crowd.sendall(_handshake(SessionIdentity(0, bytes(16))) + _SLOW)
        for _ in ("the handshake", "the first request"):
            crowd.recv(4096)
        sock.sendall(_handshake(identity) + _frame(Close()))
        while sock.recv(4096):  # the client takes its session back
            pass


def _handshake(identity: SessionIdentity) -> bytes:
    body = struct.pack("!iqiq", 0, 0, 10_000, identity.ident)
    body += struct.pack("!i", len(identity.password)) + identity.password + b"\0"
    return struct.pack("!i", len(body)) + body


def _frame(request: Request) -> bytes:
    body = request.serialize()
    return struct.pack("!iii", len(body) + 8, 1, request.type) + body


def _identity(client: PluginLocator) -> SessionIdentity:
    line = _resources(client).sessions.current
    assert line is not None
    assert line.session is not None
    return line.session.identity


def _resources(client: PluginLocator) -> Resources:
    backend = client.backend
    assert isinstance(backend, ZookeeperBackend)
    return backend._resources


# The server compares each entry of an access control list with each other one.
_ACL = tuple(ACL(1, Id("digest", f"user:{number}")) for number in range(_ENTRIES))
_SLOW = _frame(Create("/nowhere/node", b"", _ACL, ephemeral=False)) * _SLOW_REQUESTS
