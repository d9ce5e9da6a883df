"""The session timeout that a server grants: it may be another one at each connection."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from kip30 import Leadership
from kip30.driver.clock import SystemClock
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open, opening

_LONG, _SHORT = 40.0, 8.0
_TIMEOUTS = ("session", "operation")


@pytest.fixture
def settings() -> list[str]:
    """Return the lines of ``zoo.cfg`` that the server reads when it starts, and starts again."""
    return [_limit(_LONG)]


@pytest.fixture
def ensemble(settings: list[str], tmp_path: Path) -> Iterator[Ensemble]:
    with start("zookeeper", folder=tmp_path / "server", extra=settings) as servers:
        yield servers


@pytest.fixture
def three(settings: list[str], tmp_path: Path) -> Iterator[Ensemble]:
    settings[:] = [_limit(_SHORT * time_scale())]
    with start("zookeeper", 3, folder=tmp_path / "servers", extra=settings) as servers:
        yield servers


def _limit(seconds: float) -> str:
    return f"maxSessionTimeout={seconds * 1000:.0f}"


def test_another_timeout_than_requested_is_logged(
    open_client: Open, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = round(_LONG) + 1
    client = open_client(**{"plugin.session.timeout.ms": 1000 * seconds})
    assert client.backend.describe()["session timeout"] == f"{_LONG:g} s"
    assert f"a session timeout of {_LONG:g} s instead of {seconds:g} s" in caplog.text


def test_a_granted_timeout_is_not_logged(
    open_client: Open, caplog: pytest.LogCaptureFixture
) -> None:
    open_client(**{"plugin.session.timeout.ms": 2300})
    assert "session timeout" not in caplog.text


def test_a_server_that_grants_less_at_a_reconnection_is_believed(
    ensemble: Ensemble, settings: list[str], open_client: Open
) -> None:
    """Else a leader would believe in its term after the servers have given the seat away."""
    timeouts = {f"plugin.{name}.timeout.ms": round(1000 * _LONG) for name in _TIMEOUTS}
    client = open_client(**timeouts)
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


@pytest.mark.large
def test_a_server_that_grants_more_at_a_reconnection_is_not_believed(
    three: Ensemble, settings: list[str], namespace: str
) -> None:
    """The next leader of the servers begins with the timeout that the session was opened with."""
    short, long = _SHORT * time_scale(), _LONG * time_scale()
    leader = three.leader()
    first, second = (node for node in three.nodes if node is not leader)
    second.kill()
    timeouts = {"session_ms": round(1000 * long), "operation_ms": round(1000 * short / 2)}
    with opening(three, namespace, **timeouts) as open_client:
        hosts = f"{first.address},{second.address}"
        client = open_client(**{"zookeeper.connect": hosts})
        election = client.leader_election("s")
        election.nominate("c", "")
        term = eventually(lambda: election.leadership("c"), what="c leads")
        settings[:] = [_limit(long)]
        second.restart()
        three.await_ready([second])
        first.kill()
        client.storage().put("k", "v")
        for _ in range(2):
            before = term.deadline
            eventually(partial(_moved, term, before), within=_SHORT, what="a renewal")
            assert term.deadline - SystemClock().now() <= short
        assert term.is_valid()


def _moved(term: Leadership, before: float) -> bool:
    return term.deadline != before
