"""Guarantees of every store for a controller, by real brokers that run the program of the docs."""

import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from kip30 import JSON, PluginLocator, Storage
from kip30.config import Written
from kip30.driver import Capability
from kip30_conformance.clients.broker_cluster import BrokerCluster, BrokerProcess
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenClient, Suite

TOPIC = {"0": [1, 2, 3], "1": [2, 3, 1], "2": [3, 1, 2]}
"""Partitions that brokers 1, 2 and 3 have replicas of, each to be led by another one."""


class ControllerSuite(Suite):
    """Base of the suites of the controller."""

    @pytest.fixture
    def cluster(
        self, harness: Harness, root: str, timeouts: Mapping[str, Written], tmp_path: Path
    ) -> Iterator[BrokerCluster]:
        """Yield a place for brokers of the check's own store; they end with the check."""
        with closing(BrokerCluster(tmp_path, harness.properties(root, **timeouts))) as cluster:
            yield cluster

    @pytest.fixture
    @override
    def client(self, open_client: OpenClient, harness: Harness) -> PluginLocator:
        """Return the client of an administrator, which no fault happens to."""
        client = open_client(**harness.steady)
        if missing := {Capability.FENCING, Capability.LISTING} - client.backend.capabilities:
            names = ", ".join(sorted(one.value for one in missing))
            pytest.skip(f"the controller needs {names}")
        return client

    @pytest.fixture
    def admin(self, client: PluginLocator) -> Storage[Any]:
        """Return the storage that topics are created by, and states read."""
        return client.storage(JSON)


class ControllerTests(ControllerSuite):
    """The controller is replaced in an orderly way, and leaves an illegal state by itself."""

    def test_A03_broker_leaves(self, cluster: BrokerCluster, client: PluginLocator) -> None:
        """The partitions of a broker that ends get other leaders, from the same controller."""
        brokers, epoch = three_brokers(cluster, client), cluster.controller()[1]
        gone = leading_broker(cluster, client, brokers)
        assert gone.ended_by(signal.SIGTERM) == -signal.SIGTERM
        state = await_leaders(client.storage(JSON), "state/t", {1, 2, 3} - {gone.broker})
        assert state["controller_epoch"] == epoch
        cluster.expect_rising_states()

    def test_A04_illegal_state(self, cluster: BrokerCluster, admin: Storage[Any]) -> None:
        """A controller that reads a later epoch resigns and is elected again, in a later term."""
        (broker,) = cluster.start(1)
        _, epoch = cluster.controller()
        admin.put("state/t", {"controller_epoch": epoch + 1, "leaders": {"0": 2}})
        admin.put("topics/t", {"0": [1]})
        state = await_leaders(admin, "state/t", {1})
        assert state["controller_epoch"] == max(broker.epochs()) > epoch
        lines = broker.printed
        assert lines.index("start over: ") < lines.rindex("controller, epoch ")
        assert lines.count("not controller") == len(broker.epochs()) - 1
        cluster.expect_rising_states()

    @pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.heavy)])
    def test_A05_epochs_rise_in_states(
        self, cluster: BrokerCluster, client: PluginLocator, rounds: int
    ) -> None:
        """Each controller has a greater epoch, and states only ever get greater ones."""
        admin = client.storage(JSON)
        three_brokers(cluster, client)
        controller, epoch = cluster.controller()
        epochs, topics = [epoch], ["t"]
        for nth in range(rounds):
            controller.ended_by(signal.SIGTERM)
            ended = controller.broker
            controller, epoch = cluster.controller(epochs[-1])
            epochs.append(epoch)
            topics.append(f"t{nth}")
            admin.put(f"topics/t{nth}", TOPIC)
            for topic in topics:
                await_leaders(admin, f"state/{topic}", {1, 2, 3} - {ended}, epoch=epoch)
            cluster.start(ended)
            await_members(client, {1, 2, 3})
        assert epochs == sorted(set(epochs))
        cluster.expect_rising_states()


def three_brokers(cluster: BrokerCluster, client: PluginLocator) -> list[BrokerProcess]:
    """Start brokers 1, 2 and 3, and create the topic ``t``, of which each leads a partition.

    On a busy machine one that loses its session meanwhile leads none.
    """
    brokers = cluster.start(1, 2, 3)
    await_members(client, {1, 2, 3})
    admin = client.storage(JSON)
    admin.put("topics/t", TOPIC)
    await_leaders(admin, "state/t", {1, 2, 3})
    return brokers


def leading_broker(
    cluster: BrokerCluster, client: PluginLocator, brokers: Sequence[BrokerProcess]
) -> BrokerProcess:
    """Return one that leads a partition of the topic ``t`` and is not the controller."""
    led = await_leaders(client.storage(JSON), "state/t", {1, 2, 3})["leaders"].values()
    controller, _ = cluster.controller()
    return next(one for one in brokers if one is not controller and one.broker in led)


def await_members(client: PluginLocator, brokers: Collection[int]) -> None:
    """Wait until these brokers, and no others, are members."""
    group, ids = client.group_membership("brokers"), frozenset(map(str, brokers))
    eventually(lambda: group.membership_list() == ids, within=30, what=f"{ids} are members")


def await_leaders(
    admin: Storage[Any], key: str, leaders: Collection[int], *, epoch: int = 0, within: float = 30.0
) -> Any:
    """Wait until each partition is led by one of *leaders*, by a state from *epoch* on.

    Returns:
        The state.
    """

    def find() -> Any:
        found = admin.get(key)
        if found is None or found.value["controller_epoch"] < epoch:
            return None
        return found.value if set(found.value["leaders"].values()) <= set(leaders) else None

    return eventually(find, within=within, what=f"{leaders} lead by {key}, epoch {epoch} or later")
