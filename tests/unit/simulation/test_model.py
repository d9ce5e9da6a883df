"""A client of the modelled store behind a bad network, each on simulated threads."""

from collections.abc import Callable

import pytest

from kip30 import KeyExistsError, OutcomeUnknownError, PluginLocator, UnavailableError, ValueChange
from kip30.config import Written
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from kip30_conformance.simulation.model_client import ModelBackend, ModelService, offered
from kip30_conformance.simulation.model_store import ModelStore
from kip30_conformance.simulation.network import Network, NetworkConditions
from kip30_conformance.simulation.present import simulation
from kip30_conformance.simulation.simulated_peer import SimulatedPeer

pytestmark = pytest.mark.virtual_time

PROPERTIES: dict[str, Written] = {
    "plugin.locator.classname": f"{ModelBackend.__module__}:{ModelBackend.__qualname__}",
    "plugin.model.store": "bad",
    "plugin.session.timeout.ms": 2000,
    "plugin.operation.timeout.ms": 500,
    "plugin.connect.timeout.ms": 500,
}

Work = Callable[[PluginLocator, Network], None]


def _run(work: Work) -> None:
    """Call *work* with a client, and the network before its store."""
    service = ModelService(ModelStore(simulation()), Network(simulation(), 1, NetworkConditions()))
    with offered("bad", service), PluginLocator().startup(PROPERTIES) as client:
        work(client, service.network)
        service.network.conditions = NetworkConditions()


def test_a_lost_request_is_not_done() -> None:
    def work(client: PluginLocator, network: Network) -> None:
        network.conditions.lost_requests = 1.0
        with pytest.raises(OutcomeUnknownError):
            client.storage().put("k", "v")
        network.conditions.lost_requests = 0.0
        assert client.storage().get("k") is None

    _run(work)


def test_a_request_is_done_although_its_answer_is_lost() -> None:
    def work(client: PluginLocator, network: Network) -> None:
        network.conditions.lost_answers = 1.0
        with pytest.raises(OutcomeUnknownError):
            client.storage().put("k", "v")
        network.conditions.lost_answers = 0.0
        with pytest.raises(KeyExistsError):
            client.storage().put("k", "v")

    _run(work)


def test_a_late_request_is_done_later() -> None:
    def work(client: PluginLocator, network: Network) -> None:
        network.conditions.late_requests = 1.0
        with pytest.raises(OutcomeUnknownError):
            client.storage().put("k", "v")
        network.conditions.late_requests = 0.0
        eventually(lambda: client.storage().get("k"), what="it arrives")

    _run(work)


@pytest.mark.parametrize("how", ["cut_off", "unheard"])
def test_what_is_cut_off_gets_no_answer(how: str) -> None:
    def work(client: PluginLocator, network: Network) -> None:
        getattr(network.conditions, how).add("test")
        with pytest.raises(UnavailableError):
            client.storage().get("k")

    _run(work)


def test_the_last_state_is_notified_over_lost_and_repeated_notifications() -> None:
    def work(client: PluginLocator, network: Network) -> None:
        heard = Recorder[ValueChange[str]]()
        client.listener_registry().add_value_change_listener("k", heard)
        network.conditions.lost_notifications = network.conditions.repeated_notifications = 0.5
        for number in range(50):
            client.storage().set("k", str(number))
        eventually(lambda: heard.events and heard.events[-1].value == "49")
        values = [event.value for event in heard.events]
        assert len(values) == len(set(values)) < 50

    _run(work)


def test_a_member_of_a_killed_process_is_gone_after_its_session() -> None:
    def work(client: PluginLocator, _: Network) -> None:
        group, peer = client.group_membership("g"), SimulatedPeer(PROPERTIES)
        peer.call("join", group="g", member_id="m")
        assert group.membership_list() == {"m"}
        begun = simulation().now
        peer.kill()
        eventually(lambda: not group.membership_list())
        assert 1.0 < simulation().now - begun < 2.2

    _run(work)
