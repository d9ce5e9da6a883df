"""Peculiarities of modelled stores, and how a client handles them."""

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30_conformance.polling import eventually
from kip30_conformance.simulation.dialects import DIALECTS, StoreDialect
from kip30_conformance.simulation.model_client import ModelBackend
from kip30_conformance.simulation.model_service import ModelService, offered
from kip30_conformance.simulation.model_store import ModelStore
from kip30_conformance.simulation.network import Network, NetworkConditions
from kip30_conformance.simulation.present import simulation
from kip30_conformance.simulation.simulated_peer import SimulatedPeer

pytestmark = [pytest.mark.virtual_time(always=True)]

SESSION: dict[str, Written] = {"plugin.session.timeout.ms": 2000}
_PROPERTIES: dict[str, Written] = {
    "plugin.locator.classname": f"{ModelBackend.__module__}:{ModelBackend.__qualname__}",
    "plugin.model.store": "own",
}


@contextmanager
def _store(dialect: StoreDialect) -> Generator[ModelService]:
    """Offer a store with *dialect* in the block."""
    found = simulation()
    service = ModelService(ModelStore(found, dialect), Network(found, 1, NetworkConditions()))
    with offered("own", service):
        yield service


def _opened(properties: dict[str, Written]) -> PluginLocator:
    return PluginLocator().startup({**_PROPERTIES, **properties})


@pytest.mark.parametrize(("delay", "least"), [(0.0, 0.0), (5.0, 5.0)])
def test_a_service_is_free_after_the_delay_alone(delay: float, least: float) -> None:
    with _store(StoreDialect(delay_seconds=delay)) as service, _opened(SESSION) as client:
        peer = SimulatedPeer({**_PROPERTIES, **SESSION})
        peer.call("nominate", service="s", candidate="a")
        eventually(lambda: client.leader_election("s").get_leader(), what="it leads")
        ended: list[float] = []
        service.store.on_expiry.append(lambda _: ended.append(simulation().now))
        peer.kill()
        election = client.leader_election("s")
        election.nominate("b", "")
        assert election.wait_elected("b", 60) is not None
        assert least <= simulation().now - ended[0] < least + 2


@pytest.mark.parametrize("poll", [0.0, 3.0])
def test_a_change_is_noticed_within_the_poll_interval(poll: float) -> None:
    with _store(StoreDialect(poll_seconds=poll)), _opened(SESSION) as client:
        heard: list[tuple[str | None, float]] = []
        client.listener_registry().add_value_change_listener(
            "k", lambda change: heard.append((change.value, simulation().now))
        )
        late = list[float]()
        for number in range(20):
            client.storage().set("k", str(number))
            begun = simulation().now
            simulation().park(poll + 0.2)
            assert heard[-1][0] == str(number)
            late.append(heard[-1][1] - begun)
        assert client.backend.limits.observe_seconds == poll
        assert poll / 2 <= max(late) <= poll + 0.1


@pytest.mark.parametrize(("properties", "seconds"), [(SESSION, 2.0), ({}, 7.0)])
def test_a_timeout_that_was_not_asked_for_gives_way(
    properties: dict[str, Written], seconds: float
) -> None:
    with _store(StoreDialect(granted_seconds=7.0)), _opened(properties) as client:
        assert client.group_membership("g").join("m", "").timeout_seconds == seconds


@pytest.mark.parametrize("name", ["etcd", "embedded"])
def test_a_restart_lengthens_sessions_if_the_dialect_does(name: str) -> None:
    dialect = DIALECTS[name]
    with _store(dialect) as service, _opened(SESSION) as client:
        peer = SimulatedPeer({**_PROPERTIES, **SESSION})
        peer.call("join", group="g", member_id="m")
        peer.kill()
        service.stop()
        simulation().park(5.0)
        service.restart()
        simulation().park(0.5)
        is_there = "m" in client.group_membership("g").membership_list()
        assert is_there == dialect.lengthens_sessions
