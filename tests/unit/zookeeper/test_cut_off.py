"""A client that is cut off together with its follower, just after it has renewed its session.

The leader of the servers hears of a session with a follower's answers to its pings, every half
tick. So at that moment it knows of an earlier renewal than the client does.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from kip30 import LeaderElection, Leadership, PluginLocator
from kip30.driver.clock import SystemClock
from kip30_backends.zookeeper import ZookeeperBackend
from kip30_backends.zookeeper.session import Sessions
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.servers import Ensemble, Node, start
from tests.unit.clients import unused_namespace

_TICKS = (0.5, 2.0)
_SESSIONS = (10.0, 20.0, 40.0)
_CLIENTS = 3
_TICKS_TO_END = 4
_SETTLING_SHARE = 0.6
_LEAST_RENEWALS = 4
_OPERATION_SECONDS = 2.0
_LOOKS_PER_OPERATION = 20
_PAUSE = 0.002


class Seat(NamedTuple):
    """A service that a client leads which will be cut off, and another one's candidacy for it."""

    session_seconds: float
    client: PluginLocator
    term: Leadership
    election: LeaderElection[str]

    def sessions(self) -> Sessions:
        """Return the sessions of the client that leads."""
        backend = self.client.backend
        assert isinstance(backend, ZookeeperBackend)
        return backend.faults

    def successor(self) -> Leadership | None:
        """Return the term of the other candidate, once it leads."""
        return self.election.leadership("b")


@pytest.fixture(params=_TICKS)
def tick_seconds(request: pytest.FixtureRequest) -> float:
    seconds: float = request.param
    return seconds


@pytest.fixture
def ensemble(tick_seconds: float, tmp_path: Path) -> Iterator[Ensemble]:
    tick = f"tickTime={tick_seconds * 1000:.0f}"
    with start("zookeeper", 3, folder=tmp_path / "servers", extra=[tick]) as servers:
        yield servers


@pytest.mark.large
def test_a_cut_just_after_a_renewal(ensemble: Ensemble, tick_seconds: float) -> None:
    """The others elect a leader only when the one that is cut off has stopped."""
    with ExitStack() as clients:
        seats, follower = occupy(ensemble, clients, _CLIENTS)
        # By then the newest requests are renewals, not those of the claim.
        time.sleep(max(_SESSIONS) * _SETTLING_SHARE)
        assert renew(seats, tick_seconds / 2)
        ensemble.isolate(follower)
        assert not any(overlaps(seats, tick_seconds))
        ensemble.heal()


def occupy(ensemble: Ensemble, clients: ExitStack, count: int) -> tuple[list[Seat], Node]:
    """Let *count* clients lead for each session timeout, all at the follower that is returned."""
    leader = ensemble.leader()
    follower, *_ = (node for node in ensemble.nodes if node is not leader)
    rest = [node for node in ensemble.nodes if node is not follower]
    namespace = unused_namespace()
    seats = []
    for seconds in _SESSIONS:
        waiting = clients.enter_context(_client(namespace, seconds, rest))
        for number in range(count):
            service = f"{seconds:g}-{number}"
            leading = clients.enter_context(_client(namespace, seconds, [follower]))
            election = waiting.leader_election(service)
            term = _leads(leading.leader_election(service))
            seats.append(Seat(seconds, leading, term, election))
            election.nominate("b", "")
    return seats, follower


def _leads(election: LeaderElection[str]) -> Leadership:
    election.nominate("a", "")
    return eventually(lambda: election.leadership("a"), what="a leads")


def _client(namespace: str, session_seconds: float, nodes: Sequence[Node]) -> PluginLocator:
    return PluginLocator().startup(
        {
            "plugin.backend": "zookeeper",
            "plugin.namespace": namespace,
            "plugin.session.timeout.ms": round(1000 * session_seconds),
            "plugin.operation.timeout.ms": round(1000 * min(session_seconds, _operation_seconds())),
            "zookeeper.connect": ",".join(node.address for node in nodes),
        }
    )


def _operation_seconds() -> float:
    return _OPERATION_SECONDS * time_scale()


def renew(seats: Sequence[Seat], within_seconds: float) -> int:
    """Let all renew their sessions at one moment, and return how many have in that time.

    Each does that later than it would have, so that its renewal before that is the last one of
    which the leader of the servers knows.
    """
    moment = time.monotonic() + max(_SESSIONS) / _LEAST_RENEWALS
    for seat in sorted(seats, key=lambda seat: -seat.session_seconds):
        time.sleep(max(0.0, moment - seat.session_seconds / _LEAST_RENEWALS - time.monotonic()))
        seat.sessions()._renewal_at = moment
    time.sleep(max(0.0, moment - time.monotonic()))
    deadlines = [seat.term.deadline for seat in seats]
    # A client looks that often whether a renewal is due.
    within_seconds += _operation_seconds() / _LOOKS_PER_OPERATION
    until = time.monotonic() + within_seconds
    while (count := _renewed(seats, deadlines)) < len(seats) and time.monotonic() < until:
        time.sleep(_PAUSE)
    return count


def _renewed(seats: Sequence[Seat], deadlines: Sequence[float]) -> int:
    return sum(seat.term.deadline > before for seat, before in zip(seats, deadlines, strict=True))


def overlaps(seats: Sequence[Seat], tick_seconds: float) -> list[float]:
    """Return for how long each seat had two leaders, by their own clocks, once b leads in each."""
    clock, open_seats, found = SystemClock(), list(seats), []

    def is_over() -> bool:
        for seat in list(open_seats):
            term = seat.successor()
            if term is not None and term.is_valid():
                open_seats.remove(seat)
                found.append(max(0.0, seat.term.deadline - clock.now()) * seat.term.is_valid())
        return not open_seats

    longest = max(seat.session_seconds for seat in seats) + _TICKS_TO_END * tick_seconds
    eventually(is_over, within=2 * longest, what="the others elect a leader for each service")
    return found
