"""A reliable backend behind a bad network: requests, answers and notifications, one at a time."""

from collections.abc import Callable, Iterator

import pytest

from kip30 import KeyExistsError, OutcomeUnknownError, PluginLocator, UnavailableError
from kip30.config import Written
from kip30.driver import Backend, Capability
from kip30.driver.records import Condition, Kind, Snapshot, Target, Write
from kip30.names import Key
from kip30_conformance.polling import eventually
from kip30_conformance.simulation.model_client import ModelBackend
from kip30_conformance.simulation.model_service import ModelService, offered
from kip30_conformance.simulation.model_store import ModelStore
from kip30_conformance.simulation.network import Network, NetworkConditions
from kip30_conformance.simulation.present import simulation
from kip30_conformance.simulation.simulated_backend import SimulatedBackend
from kip30_conformance.simulation.unreliable import named, unreliable

pytestmark = pytest.mark.virtual_time(always=True)

PROPERTIES: dict[str, Written] = {
    "plugin.model.store": "inner",
    "plugin.session.timeout.ms": 2000,
    "plugin.operation.timeout.ms": 500,
    "plugin.connect.timeout.ms": 500,
}
GROUP = Target(Kind.GROUP, "g")


@pytest.fixture
def inner() -> Iterator[ModelService]:
    """Yield a store whose own network is good."""
    found = simulation()
    service = ModelService(ModelStore(found), Network(found, 1, NetworkConditions()))
    with offered("inner", service):
        yield service


@pytest.fixture
def network(inner: ModelService) -> Network:
    """Return the network between the core and the client of that store."""
    return Network(inner.network.simulation, 2, NetworkConditions())


@pytest.fixture
def client(network: Network) -> Iterator[PluginLocator]:
    with named(unreliable(ModelBackend, network)) as name:
        properties = {**PROPERTIES, "plugin.locator.classname": name}
        with PluginLocator().startup(properties) as one:
            yield one
            network.conditions = NetworkConditions()


@pytest.fixture
def driver(client: PluginLocator) -> Backend:
    return client.backend


def test_a_lost_request_does_not_reach_the_driver(client: PluginLocator, network: Network) -> None:
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


@pytest.mark.parametrize("late", ["late_requests", "late_answers"])
def test_a_late_put_raises_outcome_unknown_but_takes_effect(
    client: PluginLocator, network: Network, late: str
) -> None:
    setattr(network.conditions, late, 1.0)
    with pytest.raises(OutcomeUnknownError):
        client.storage().put("k", "v")
    setattr(network.conditions, late, 0.0)
    eventually(lambda: client.storage().get("k"), what="it arrives")


def test_a_late_update_reaches_the_driver_after_a_later_one(
    client: PluginLocator, network: Network, inner: ModelService
) -> None:
    member = client.group_membership("g")
    member.join("m", "")
    network.conditions.late_requests = 1.0
    with pytest.raises(OutcomeUnknownError):
        member.update("m", "1")
    network.conditions.late_requests = 0.0
    member.update("m", "2")
    simulation().park(network.conditions.late_seconds)
    (root,) = {client.context.namespace}
    assert inner.store.look(root, GROUP).entries["m"].data == b"2"


def test_a_read_without_an_answer_is_unavailable(client: PluginLocator, network: Network) -> None:
    network.conditions.cut_off.add("test")
    with pytest.raises(UnavailableError):
        client.storage().get("k")
    with pytest.raises(UnavailableError):
        client.backend.describe()


def test_nothing_about_values_passes_and_members_are_seen(
    client: PluginLocator, network: Network
) -> None:
    network.conditions.without_values.add("test")
    with pytest.raises(UnavailableError):
        client.storage().get("k")
    values: list[Snapshot] = []
    members: list[Snapshot] = []
    client.backend.observe.watch(Target(Kind.NAMESPACE, "n"), values.append)
    client.backend.observe.watch(GROUP, members.append)
    eventually(lambda: members, what="the members are seen")
    simulation().park(5.0)
    assert not values
    network.conditions.without_values.clear()
    eventually(lambda: values, what="the names of values are seen")


def test_a_claim_without_an_answer_is_served(driver: Backend, network: Network) -> None:
    network.conditions.unanswered.add("test")
    for claim in (
        driver.membership.claim("g", "m", "nonce", b""),
        driver.election.claim("s", "c", "nonce", b""),
    ):
        with pytest.raises(OutcomeUnknownError):
            claim.result()
    assert set(driver.observe.snapshot(GROUP).result().entries) == {"m"}
    assert driver.observe.snapshot(Target(Kind.SERVICE, "s")).result().entries


def test_a_store_out_of_reach_is_not_opened(network: Network) -> None:
    network.is_down = True
    with named(unreliable(ModelBackend, network)) as name, pytest.raises(UnavailableError):
        PluginLocator().startup({**PROPERTIES, "plugin.locator.classname": name})


def test_each_of_many_writes_is_answered(driver: Backend, network: Network) -> None:
    writes = [Write(Key("n", name), f"nonce {name}", b"v", Condition.ABSENT) for name in "aab"]
    first, second, third = driver.storage.write_many(writes)
    assert first.result() < third.result()
    assert isinstance(second.exception(), KeyExistsError)
    network.conditions.lost_answers = 1.0
    errors = [answer.exception() for answer in driver.storage.write_many(writes)]
    assert [type(error) for error in errors] == [OutcomeUnknownError] * 3


def test_members_are_released_together(driver: Backend) -> None:
    claims = [driver.membership.claim("g", name, name, b"").result() for name in "ab"]
    for released in driver.membership.release_many("g", claims):
        released.result()
    assert driver.observe.snapshot(GROUP).result().entries == {}


def test_the_last_state_is_notified_over_lost_and_repeated_notifications(
    driver: Backend, network: Network
) -> None:
    network.conditions.lost_notifications = network.conditions.repeated_notifications = 0.5
    seen: list[Snapshot] = []
    watch = driver.observe.watch(GROUP, seen.append)
    for number in range(30):
        driver.membership.claim("g", f"m{number}", f"nonce {number}", b"").result()
    eventually(lambda: seen and len(seen[-1].entries) == 30, what="the last state")
    orders = [state.order for state in seen]
    assert orders == sorted(orders)
    assert len(set(orders)) < len(orders)
    assert len(set(orders)) < 31
    watch.close()
    watch.close()
    before = len(seen)
    driver.membership.claim("g", "last", "nonce", b"").result()
    simulation().park(5.0)
    assert len(seen) == before


def test_a_backend_may_be_closed_twice(client: PluginLocator) -> None:
    client.group_membership("g").join("m", "")
    client.backend.close()
    client.backend.close()


def test_the_session_is_that_of_the_newest_claim(driver: Backend) -> None:
    assert isinstance(driver, SimulatedBackend)
    assert driver.session() is None
    claim = driver.membership.claim("g", "m", "nonce", b"").result()
    first = driver.session()
    assert first is not None
    assert first[1] is claim.lease
    driver.membership.claim("g", "n", "other", b"").result()
    assert driver.session() == first
    claim.lease.end("for a test")
    driver.membership.claim("g", "o", "third", b"").result()
    assert driver.session() != first


def test_errors_that_are_not_of_kip30_are_passed_on(
    driver: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(vars(driver)["_inner"].storage, "read", fail)
    with pytest.raises(RuntimeError, match="broken"):
        driver.storage.read([Key("n", "a")]).result()


def test_the_class_is_that_of_the_backend_but_for_what_does_not_travel(network: Network) -> None:
    class Able(ModelBackend):
        capabilities = ModelBackend.capabilities | {Capability.SCANNING, Capability.LEASE_SHARING}

    made = unreliable(Able, network)
    assert made.name == "model"
    assert made.settings_class is ModelBackend.settings_class
    assert made.capabilities == ModelBackend.capabilities


def test_a_name_is_gone_after_its_block(network: Network) -> None:
    with named(unreliable(ModelBackend, network)) as name:
        pass
    with pytest.raises(Exception, match="cannot be imported"):
        PluginLocator().startup({**PROPERTIES, "plugin.locator.classname": name})


def test_requests_and_answers_are_noted(client: PluginLocator, network: Network) -> None:
    lines: list[str] = []
    note: Callable[[str, str], None] = lambda where, text: lines.append(f"{where} {text}")  # noqa: E731
    network.noted = note
    client.storage().set("n/k", "v")
    network.conditions.lost_answers = 1.0
    with pytest.raises(OutcomeUnknownError):
        client.storage().set("n/k", "w")
    at = [line.partition("test storage.write('n/k', ")[2] for line in lines]
    assert ["b'v') at the driver: done" in at[0], "b'v') at the core: done" in at[1]] == [True] * 2
    assert "b'w') at the driver: done" in at[2]
    assert "at the core: OutcomeUnknownError('no answer in time')" in at[3]
