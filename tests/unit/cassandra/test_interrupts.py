"""Ctrl-C in a caller, which a later caller must not notice."""

import contextlib
import threading
from typing import Any

import pytest

from kip30.driver.records import Kind, Snapshot, Target
from kip30_backends.cassandra import CassandraBackend
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from tests.unit.clients import Open

TARGETS = (
    Target(Kind.SERVICE, "s"),
    Target(Kind.GROUP, "g"),
    Target(Kind.NAMESPACE, "n"),
    Target(Kind.VALUE, "n", "k"),
)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.kind.name)
def test_an_interrupt_as_a_watch_begins_stops_no_later_one(
    open_client: Open, monkeypatch: pytest.MonkeyPatch, target: Target
) -> None:
    backend = open_client().backend
    assert isinstance(backend, CassandraBackend)
    connections = backend._resources.connections
    send = connections.send

    def interrupted(*request: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        send(*request)

    with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
        patched.setattr(connections, "send", interrupted)
        backend.observe.watch(target, Recorder[Snapshot]())
    later = [(one, Recorder[Snapshot]()) for one in TARGETS]
    for one, received in later:
        backend.observe.watch(one, received)
    eventually(lambda: all(received.events for _, received in later), what="all have a state")
