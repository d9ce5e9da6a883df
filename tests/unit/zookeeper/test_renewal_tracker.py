"""Requests of a session that the leader of the servers knows of."""

from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from kip30 import ConfigError, Leadership, PluginLocator
from kip30.driver.clock import ManualClock, SystemClock
from kip30.driver.lease import Lease
from kip30_backends.zookeeper.calls import SyncPoint
from kip30_backends.zookeeper.client.kazoo_setup import Session, SessionIdentity
from kip30_backends.zookeeper.client.transport import RenewalTracker, Transport
from kip30_backends.zookeeper.session import ManagedSession
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import Open, opening

_INTERVAL = 5.0
_SESSION = 4.0 * time_scale()
_MARGIN = _SESSION / 10
_TICK = 3.0 * time_scale()


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Yield a server that does not report its tick, which is the default of servers."""
    folder, allowed = tmp_path_factory.mktemp("silent"), "4lw.commands.whitelist=srvr"
    with start("zookeeper", folder=folder, extra=[allowed]) as servers:
        yield servers


@pytest.fixture
def open_client(silent: Ensemble, namespace: str) -> Iterator[Open]:
    with opening(silent, namespace) as open_one:
        yield open_one


@pytest.fixture
def talkative(ensemble: Ensemble, namespace: str) -> Iterator[Open]:
    with opening(ensemble, namespace) as open_one:
        yield open_one


def test_the_leader_renews_the_session_itself_when_it_confirms_it() -> None:
    assert RenewalTracker(100.0, _INTERVAL).reported(100.0) == 100.0


def test_a_request_is_reported_by_the_ping_after_its_answer() -> None:
    renewals = RenewalTracker(100.0, _INTERVAL)
    renewals.answered(101.0, 102.0)
    renewals.answered(103.0, 104.0)
    assert renewals.reported(106.0) == 100.0
    assert renewals.reported(107.0) == 101.0
    assert renewals.reported(108.0) == 101.0
    assert renewals.reported(109.0) == 103.0


def test_the_reported_time_never_goes_back() -> None:
    renewals = RenewalTracker(100.0, _INTERVAL)
    renewals.answered(101.0, 102.0)
    assert renewals.reported(107.0) == 101.0
    assert renewals.reported(102.0) == 101.0


def test_a_renewal_is_measured_from_its_request() -> None:
    """The lease counts from an earlier one."""
    clock, took = ManualClock(), list[float]()
    connected_at = clock.now()
    lease = Lease(clock, sent_at=connected_at, timeout_seconds=30, margin_seconds=1)
    lease.on_renewal = took.append
    managed = ManagedSession.__new__(ManagedSession)
    managed.session = Session(SessionIdentity(1, b""), lease, ())
    link: Any = Mock()
    transport = Transport(link, managed, clock, RenewalTracker(connected_at, _INTERVAL))
    clock.advance(2)
    sync = SyncPoint(clock.now())
    clock.advance(1)
    transport._synced(sync)
    clock.advance(1)
    assert transport._to_confirm is not None
    transport._proven(*transport._to_confirm, SyncPoint(clock.now()))
    assert took == [2]
    assert lease.renewed_at == connected_at


@pytest.mark.parametrize(
    ("more", "interval"),
    [({}, _SESSION / 4), ({"plugin.zookeeper.tick.ms": round(1000 * _TICK)}, _TICK / 2)],
    ids=["unknown", "known"],
)
@pytest.mark.medium
def test_a_renewal_counts_from_before_the_last_ping(
    open_client: Open, more: dict[str, int], interval: float
) -> None:
    """Servers grant two ticks or more, so a ping comes in each quarter of the timeout."""
    term, clock = _term(open_client(**_timeouts(), **more)), SystemClock()
    for _ in range(3):
        before = term.deadline
        eventually(partial(_moved, term, before), what="the next renewal")
        assert term.deadline - clock.now() <= _SESSION - _MARGIN - interval
    assert term.is_valid()


@pytest.mark.medium
def test_servers_that_tell_their_tick(talkative: Open) -> None:
    """Then a lease counts from later than it could if the tick were half of the timeout."""
    term, clock = _term(talkative(**_timeouts())), SystemClock()
    begun = term.deadline
    eventually(
        lambda: (
            term.deadline > begun
            and term.deadline - clock.now() > _SESSION - _MARGIN - _SESSION / 4
        ),
        what="a renewal counts from later",
    )


def test_a_tick_that_outlasts_the_session(open_client: Open) -> None:
    with pytest.raises(ConfigError, match=r"less than plugin\.zookeeper\.tick\.ms"):
        open_client(**_timeouts(), **{"plugin.zookeeper.tick.ms": round(1000 * _SESSION) + 1})


def _term(client: PluginLocator) -> Leadership:
    election = client.leader_election("s")
    election.nominate("c", "")
    return eventually(lambda: election.leadership("c"), what="c leads")


def _moved(term: Leadership, before: float) -> bool:
    return term.deadline != before


def _timeouts() -> dict[str, int]:
    return {"plugin.session.timeout.ms": round(1000 * _SESSION)}
