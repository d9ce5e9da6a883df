"""The session timeout that a server grants: it may be another one at each connection."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30.driver.clock import SystemClock
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open

_LONG, _SHORT = 40.0, 8.0


@pytest.fixture
def settings() -> list[str]:
    """Return the lines of ``zoo.cfg`` that the server reads when it starts, and starts again."""
    return [_limit(_LONG)]


@pytest.fixture
def ensemble(settings: list[str], tmp_path: Path) -> Iterator[Ensemble]:
    with start("zookeeper", folder=tmp_path / "server", extra=settings) as servers:
        yield servers


def _limit(seconds: float) -> str:
    return f"maxSessionTimeout={seconds * 1000:.0f}"


def test_a_server_that_grants_less_at_a_reconnection_is_believed(
    ensemble: Ensemble, settings: list[str], open_client: Open
) -> None:
    """Else a leader would believe in its term after the servers have given the seat away."""
    client = open_client(**{"plugin.session.timeout.ms": round(1000 * _LONG)})
    election = client.leader_election("s")
    assert election.nominate("c", "")
    term = election.leadership("c")
    assert term is not None
    assert term.deadline - SystemClock().now() > _SHORT
    settings[:] = [_limit(_SHORT)]
    ensemble.restart()
    eventually(
        lambda: term.deadline - SystemClock().now() <= _SHORT,
        within=_LONG / 2,
        what="the term ends when the server ends its session",
    )
    assert term.is_valid()
    client.storage().put("k", "v")
    assert term.deadline - SystemClock().now() <= _SHORT
