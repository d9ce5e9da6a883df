"""Guarantees of every store for a controller when brokers are killed or stopped."""

import signal
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, repeat
from typing import Any

import pytest

from kip30 import JSON, FencedError, PluginLocator
from kip30_conformance.clients.broker_cluster import BrokerCluster, SeenState
from kip30_conformance.clients.elector_log import BECOMING, ElectorLog
from kip30_conformance.clients.peer import settled
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.suite import OpenPeer
from kip30_conformance.suites.controller import (
    ControllerSuite,
    await_leaders,
    await_members,
    leading_broker,
    three_brokers,
)

_ROUNDS = [1, pytest.param(20, marks=(pytest.mark.heavy, pytest.mark.timeout(900)))]


@pytest.mark.fault
class ControllerFaultTests(ControllerSuite):
    """A dead or stopped controller is replaced, and never changes anything afterwards."""

    @pytest.mark.parametrize("rounds", _ROUNDS)
    def test_A01_killed_controller_replaced(
        self, cluster: BrokerCluster, client: PluginLocator, evidence: Evidence, rounds: int
    ) -> None:
        """Another broker takes over when the controller is killed, and replaces dead leaders."""
        admin = client.storage(JSON)
        three_brokers(cluster, client)
        controller, epoch = cluster.controller()
        for _ in range(rounds):
            controller.ended_by(signal.SIGKILL)
            evidence.saw("dead controller", controller.pid)
            dead = controller.broker
            controller, epoch = cluster.controller(epoch)
            assert controller.broker != dead
            await_leaders(admin, "state/t", {1, 2, 3} - {dead}, epoch=epoch)
            await_members(client, {1, 2, 3} - {dead})
            cluster.start(dead)
            await_members(client, {1, 2, 3})
        cluster.expect_rising_states()

    def test_A02_stopped_controller_refused(
        self, client: PluginLocator, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """A controller that is stopped for three sessions first learns that it was superseded.

        Its writes with the fence of its term are refused from then on.
        """
        stopped, successor = peer(), ElectorLog(client, 2)
        stopped.call("start_elector", broker=1)
        eventually(lambda: stopped.call("am_i_leader"), what="broker 1 leads")
        client.storage().put("state/t", "kept")
        with successor.adapter as adapter:
            stopped.stop()
            eventually(
                lambda: successor.calls == [BECOMING],
                within=10 + harness.crash_patience,
                what="broker 2 leads",
            )
            throughout(adapter.am_i_leader, seconds=2 * harness.session_seconds)
            write = {"key": "state/t", "value": "too late"}
            stopped.send("am_i_leader")
            stopped.send("set_as_leader", **write)
            stopped.resume()
            evidence.saw("stopped controller", stopped.pid)
            assert stopped.receive() is False
            again = partial(stopped.call, "set_as_leader", **write)
            _expect_refusal(chain([stopped.receive], repeat(again)))
            eventually(lambda: _has_resigned(stopped.call("elector_calls")), what="it resigns")
            assert adapter.am_i_leader()
        found = client.storage().get("state/t")
        assert found is not None
        assert found.value == "kept"

    def test_A02_stopped_broker_wakes(
        self, cluster: BrokerCluster, client: PluginLocator, harness: Harness, evidence: Evidence
    ) -> None:
        """A broker that was stopped as the controller changes no state, and follows its successor.

        It needs no code for the session that it has lost: it is a broker and a candidate again.
        """
        admin = client.storage(JSON)
        three_brokers(cluster, client)
        stopped, epoch = cluster.controller()
        stopped.send(signal.SIGSTOP)
        successor, later = cluster.controller(epoch)
        assert successor is not stopped
        others = {1, 2, 3} - {stopped.broker}
        await_leaders(admin, "state/t", others, epoch=later)
        admin.put("topics/new", {"0": [stopped.broker, successor.broker]})
        await_leaders(admin, "state/new", others, epoch=later)

        def unharmed() -> bool:
            found = admin.get("state/t"), admin.get("state/new")
            return all(one and one.value["controller_epoch"] >= later for one in found)

        throughout(unharmed, seconds=2 * harness.session_seconds)
        evidence.saw("stopped controller", stopped.pid)
        stopped.send(signal.SIGCONT)
        eventually(lambda: "not controller" in stopped.printed, what="it is the controller no more")
        await_members(client, {1, 2, 3})
        eventually(lambda: _follows(stopped.states(), later), what="it follows its successor")
        throughout(unharmed, seconds=harness.session_seconds)
        cluster.expect_rising_states()

    def test_A03_broker_gone_moves_leaders(
        self, cluster: BrokerCluster, client: PluginLocator, evidence: Evidence
    ) -> None:
        """The partitions of a killed broker get other leaders, from the same controller."""
        brokers = three_brokers(cluster, client)
        gone = leading_broker(cluster, client, brokers)
        gone.ended_by(signal.SIGKILL)
        evidence.saw("dead broker", gone.pid)
        left = {1, 2, 3} - {gone.broker}
        state: Any = await_leaders(client.storage(JSON), "state/t", left)
        assert state["controller_epoch"] in cluster.controller()[0].epochs()
        cluster.expect_rising_states()


def _expect_refusal(attempts: Iterator[Callable[[], object]]) -> None:
    """Require the first of *attempts* at a fenced write with a known outcome to be refused."""
    kind = eventually(lambda: settled(next(attempts)), what="the store answers the write")
    assert kind == FencedError.__name__


def _has_resigned(calls: list[str]) -> bool:
    """Return whether each term that was announced was resigned.

    On a busy machine the first one may run out before the process is stopped.
    """
    return len(calls) > 0 and len(calls) % 2 == 0


def _follows(states: list[SeenState], epoch: int) -> bool:
    return any(state.epoch >= epoch for state in states)
