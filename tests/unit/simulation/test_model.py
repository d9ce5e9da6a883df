"""A client of the modelled store behind a bad network, each on simulated threads."""

from collections.abc import Iterator

import pytest

from kip30 import KeyExistsError, OutcomeUnknownError, PluginLocator, UnavailableError, ValueChange
from kip30.config import Written
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from kip30_conformance.simulation.model_client import ModelBackend
from kip30_conformance.simulation.model_service import ModelService, offered
from kip30_conformance.simulation.model_store import ModelStore
from kip30_conformance.simulation.network import Network, NetworkConditions
from kip30_conformance.simulation.present import simulation
from kip30_conformance.simulation.simulated_peer import SimulatedPeer

pytestmark = pytest.mark.virtual_time(always=True)

PROPERTIES: dict[str, Written] = {
    "plugin.locator.classname": f"{ModelBackend.__module__}:{ModelBackend.__qualname__}",
    "plugin.model.store": "bad",
    "plugin.session.timeout.ms": 2000,
    "plugin.operation.timeout.ms": 500,
    "plugin.connect.timeout.ms": 500,
}


@pytest.fixture
def network() -> Iterator[Network]:
    """Yield the network before a store that clients with `PROPERTIES` reach."""
    found = simulation()
    service = ModelService(ModelStore(found), Network(found, 1, NetworkConditions()))
    with offered("bad", service):
        yield service.network


@pytest.fixture
def client(network: Network) -> Iterator[PluginLocator]:
    with PluginLocator().startup(PROPERTIES) as one:
        yield one
        network.conditions = NetworkConditions()


def test_a_lost_request_is_not_done(client: PluginLocator, network: Network) -> None:
    network.conditions.lost_requests = 1.0
    with pytest.raises(OutcomeUnknownError):
        client.storage().put("k", "v")
    network.conditions.lost_requests = 0.0
    assert client.storage().get("k") is None


def test_a_request_is_done_although_its_answer_is_lost(
    client: PluginLocator, network: Network
) -> None:
    network.conditions.lost_answers = 1.0
    with pytest.raises(OutcomeUnknownError):
        client.storage().put("k", "v")
    network.conditions.lost_answers = 0.0
    with pytest.raises(KeyExistsError):
        client.storage().put("k", "v")


def test_a_late_request_is_done_later(client: PluginLocator, network: Network) -> None:
    network.conditions.late_requests = 1.0
    with pytest.raises(OutcomeUnknownError):
        client.storage().put("k", "v")
    network.conditions.late_requests = 0.0
    eventually(lambda: client.storage().get("k"), what="it arrives")


@pytest.mark.parametrize("how", ["cut_off", "unheard"])
def test_a_cut_off_or_unheard_client_gets_no_answer(
    client: PluginLocator, network: Network, how: str
) -> None:
    getattr(network.conditions, how).add("test")
    with pytest.raises(UnavailableError):
        client.storage().get("k")


@pytest.mark.parametrize("how", ["cut_off", "unheard"])
def test_an_unheard_client_is_notified_and_a_cut_off_client_is_not(
    client: PluginLocator, network: Network, how: str
) -> None:
    heard, peer = Recorder[ValueChange[str]](), SimulatedPeer(PROPERTIES)
    client.listener_registry().add_value_change_listener("k", heard)
    getattr(network.conditions, how).add("test")
    peer.call("put", key="k", value="v")
    simulation().park(1.0)
    assert bool(heard.events) == (how == "unheard")


def test_a_client_without_values_renews_its_session(
    client: PluginLocator, network: Network
) -> None:
    """All that is not about values passes."""
    heard, peer = Recorder[ValueChange[str]](), SimulatedPeer(PROPERTIES)
    client.listener_registry().add_value_change_listener("k", heard)
    group = client.group_membership("g")
    group.join("m", "")
    network.conditions.without_values.add("test")
    peer.call("put", key="k", value="v")
    simulation().park(10.0)  # some session timeouts
    for refused in (lambda: client.storage().get("k"), lambda: list(client.storage().list(""))):
        with pytest.raises(UnavailableError):
            refused()
    assert group.membership_list() == {"m"}
    assert not heard.events
    network.conditions.without_values.clear()
    heard.expect(lambda event: event.value == "v")


def test_a_claim_without_an_answer_is_served(client: PluginLocator, network: Network) -> None:
    """All other answers pass, so the session is renewed and the member is seen."""
    group, members = client.backend.membership, client.group_membership("g")
    network.conditions.unanswered.add("test")
    with pytest.raises(OutcomeUnknownError):
        group.claim("g", "m", "nonce", b"first").result()
    simulation().park(10.0)  # some session timeouts
    assert members.membership_list() == {"m"}
    client.storage().put("k", "v")
    network.conditions.unanswered.clear()
    claim = group.claim("g", "m", "nonce", b"second").result()  # the same nonce finds it
    assert claim.entry.data == b"first"


def test_the_last_state_is_notified_over_lost_and_repeated_notifications(
    client: PluginLocator, network: Network
) -> None:
    heard = Recorder[ValueChange[str]]()
    client.listener_registry().add_value_change_listener("k", heard)
    network.conditions.lost_notifications = network.conditions.repeated_notifications = 0.5
    for number in range(50):
        client.storage().set("k", str(number))
    eventually(lambda: heard.events and heard.events[-1].value == "49")
    values = [event.value for event in heard.events]
    assert len(values) == len(set(values)) < 50


def test_a_member_of_a_killed_process_is_gone_after_its_session(client: PluginLocator) -> None:
    group, peer = client.group_membership("g"), SimulatedPeer(PROPERTIES)
    peer.call("join", group="g", member_id="m")
    assert group.membership_list() == {"m"}
    begun = simulation().now
    peer.kill()
    eventually(lambda: not group.membership_list())
    assert 1.0 < simulation().now - begun < 2.2


def test_a_backend_is_closed_once(client: PluginLocator) -> None:
    client.group_membership("g").join("m", "")
    client.backend.close()
    client.backend.close()
