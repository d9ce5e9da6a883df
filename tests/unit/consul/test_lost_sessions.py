"""What a client has lost, and the store has not: it is ended there by whoever comes next."""

from collections.abc import Iterator

import pytest

from kip30_backends.consul import ConsulBackend
from kip30_conformance.servers import Ensemble, Link
from tests.unit.clients import Open

from .admin import Admin

NONCE = "00" * 16


@pytest.fixture
def link(ensemble: Ensemble) -> Iterator[Link]:
    with ensemble.link() as one:
        yield one


@pytest.fixture
def loser(open_client: Open, link: Link) -> ConsulBackend:
    """Return a backend that has a member in the store, and has given up the session of it."""
    backend = open_client(**link.settings()).backend
    assert isinstance(backend, ConsulBackend)
    backend.membership.claim("g", "m", NONCE, b"").result()
    sessions = backend._engine.sessions
    assert sessions._session is not None
    sessions.lost(sessions._session)
    return backend


def test_it_is_ended_when_the_client_closes(loser: ConsulBackend, admin: Admin) -> None:
    before = len(admin.sessions())
    loser.close()
    assert len(admin.sessions()) == before - 1
    assert not loser._engine.sessions._threads
