"""Servers that are killed, stopped and started again: F01 to F05, F15, F18, F19, G04, S15, S30."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise

import pytest

from kip30 import Kip30Error, MembershipChange, PluginLocator, Storage, Version
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.evidence import Evidence
from kip30_conformance.fault_suites.mixed_workload import MixedWorkload, MixedWorkloadSuite
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.server_suite import (
    ROLES,
    Linked,
    OpenLinked,
    can_read,
    connected_node,
    follower,
    recovery_seconds,
)
from kip30_conformance.servers import Ensemble
from kip30_conformance.suite import OpenClient

_WRITERS = 3


@pytest.mark.fault
class NodeFaultTests(MixedWorkloadSuite):
    """No acknowledged write is lost, never two lead, and clients continue once they can."""

    def test_F01_rolling_restart(
        self, servers: Ensemble, life: MixedWorkload, harness: Harness, evidence: Evidence
    ) -> None:
        """One server after the other is restarted; after each restart the clients recover."""
        for node in servers.nodes:
            old, new = node.restart()
            servers.await_ready()
            evidence.saw("another process", old != new and new)
            life.expect_well(within=recovery_seconds(harness))

    @pytest.mark.parametrize("role", ROLES)
    def test_F02_kill_minority(
        self, three: Ensemble, life: MixedWorkload, harness: Harness, evidence: Evidence, role: str
    ) -> None:
        """Clients recover when any one server is killed, and when it is back."""
        node = ROLES[role](three)
        evidence.saw("killed server", node.kill())
        life.expect_well(within=recovery_seconds(harness))
        node.restart()
        three.await_ready()
        life.expect_well(within=recovery_seconds(harness))

    def test_F03_kill_majority_then_heal(
        self, three: Ensemble, life: MixedWorkload, harness: Harness, evidence: Evidence
    ) -> None:
        """Without a majority nothing is written and no term lasts long; then clients recover."""
        victims = three.nodes[1:]
        evidence.saw("killed servers", [node.kill() for node in victims])
        eventually(
            lambda: not life.rivals.leading(),
            within=harness.session_seconds,
            what="no candidate leads",
        )
        assert not can_read(life.inhabitants[0].client)
        for node in victims:
            node.restart()
        three.await_ready()
        life.expect_well(within=recovery_seconds(harness))

    def test_F04_pause_minority(
        self, three: Ensemble, life: MixedWorkload, harness: Harness, evidence: Evidence
    ) -> None:
        """Clients recover when one server is stopped, and when it is resumed."""
        node = follower(three)
        evidence.saw("stopped server", node.stop())
        life.expect_well(within=recovery_seconds(harness))
        node.resume()
        life.expect_well(within=recovery_seconds(harness))

    def test_F05_pause_leader_node(
        self, three: Ensemble, life: MixedWorkload, harness: Harness, evidence: Evidence
    ) -> None:
        """The servers elect another leader when theirs is stopped, and clients recover."""
        node = three.leader()
        node.stop()
        evidence.saw("another leader of the servers", three.leader().index != node.index)
        life.expect_well(within=recovery_seconds(harness))
        node.resume()
        life.expect_well(within=recovery_seconds(harness))

    def test_F15_client_endpoint_failover(
        self,
        three: Ensemble,
        open_linked: OpenLinked,
        client: PluginLocator,
        harness: Harness,
        evidence: Evidence,
    ) -> None:
        """A client whose server is killed moves on, and is a member all the time."""
        # Patient, because on a busy machine the session could end before the client has moved on.
        linked = open_linked(only=[follower(three)], **harness.patient)
        changes = Recorder[MembershipChange[str]]()
        member = linked.client.group_membership("g").join("m", "")
        client.group_membership("g").add_listener(changes)
        connected = connected_node(linked, three)
        linked.link.heal()
        evidence.saw("killed server", connected.kill())
        eventually(lambda: can_read(linked.client), within=harness.session_seconds, what="it reads")
        assert connected_node(linked, three) is not connected
        assert member.is_valid()
        assert client.group_membership("g").membership_list() == {"m"}
        assert changes.events == []

    def test_F18_leader_change_during_writes(
        self, three: Ensemble, life: MixedWorkload, harness: Harness, evidence: Evidence
    ) -> None:
        """The servers change leaders under load; one order explains every outcome."""
        for _ in range(3):
            before = three.leader()
            life.load.await_progress(within=recovery_seconds(harness))
            before.kill()
            evidence.saw("another leader of the servers", three.leader().index != before.index)
            life.load.await_progress(within=recovery_seconds(harness))
            before.restart()
            three.await_ready()
        life.expect_well(within=recovery_seconds(harness))

    def test_F19_liveness(
        self, three: Ensemble, life: MixedWorkload, harness: Harness, evidence: Evidence
    ) -> None:
        """After the loss of any single server, writes are acknowledged again soon."""
        for node in three.nodes:
            evidence.saw("killed server", node.kill())
            life.load.await_progress(within=recovery_seconds(harness))
            node.restart()
            three.await_ready()
            life.expect_well(within=recovery_seconds(harness))
        (begun, ended), *_ = life.load.silences()
        evidence.saw("longest time without an acknowledged write", f"{ended - begun:.2f} s")
        # The servers may elect twice: without the one that was killed, and when it is back.
        assert ended - begun < 2 * recovery_seconds(harness) * time_scale()

    def test_G04_partial_endpoints(
        self,
        three: Ensemble,
        client: PluginLocator,
        open_client: OpenClient,
        harness: Harness,
        evidence: Evidence,
    ) -> None:
        """With any one of the endpoints dead, a client opens and can do everything."""
        for node in three.nodes:
            evidence.saw("killed server", node.kill())
            eventually(lambda: can_read(client), within=recovery_seconds(harness), what="it serves")
            _do_everything(open_client(), node.address)
            node.restart()
            three.await_ready()

    def test_S15_monotonic_reads(
        self,
        three: Ensemble,
        linked: Linked,
        client: PluginLocator,
        harness: Harness,
        evidence: Evidence,
    ) -> None:
        """The versions that one client reads never go back, though its server is killed."""
        storage = client.storage()
        storage.put("k", "v")
        seen: list[Version] = []
        with ThreadPoolExecutor(2) as pool, _Stopping() as stopping:
            pool.submit(_read_on, linked.client.storage(), seen, stopping)
            pool.submit(_write_on, storage, stopping)
            _await_changes(seen, harness)
            connected = connected_node(linked, three)
            evidence.saw("killed server", connected.kill())
            _await_changes(seen, harness)
        assert connected_node(linked, three) is not connected
        assert [(old, new) for old, new in pairwise(seen) if new < old] == []

    def test_S30_all_servers_killed(
        self, servers: Ensemble, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """Every write acknowledged before all servers were killed is there afterwards."""
        clients = [open_client() for _ in range(_WRITERS)]
        written: list[str] = []
        with ThreadPoolExecutor(_WRITERS) as pool, _Stopping() as stopping:
            for number, client in enumerate(clients):
                pool.submit(_put_on, client.storage(), f"n/{number}", written, stopping)
            eventually(lambda: len(written) > 50 * _WRITERS, what="keys are written")
            killed = [node.kill() for node in servers.nodes]
        servers.restart()
        evidence.saw("killed servers", set(killed).isdisjoint(n.pid for n in servers.nodes))
        found = open_client().storage().fetch_many(written).result()
        assert found == {key: key for key in written}


class _Stopping(threading.Event):
    """Is set when its ``with`` block ends."""

    def __enter__(self) -> threading.Event:
        return self

    def __exit__(self, *_: object) -> None:
        self.set()


def _do_everything(client: PluginLocator, name: str) -> None:
    client.storage().put(name, "v")
    assert client.storage().fetch(name).result() == "v"
    group = client.group_membership("g")
    group.join(name, "")
    assert name in group.membership_list()
    with client.leader_election(name).lead("c", "") as term:
        assert term.is_valid()


def _read_on(storage: Storage[str], seen: list[Version], stopping: threading.Event) -> None:
    while not stopping.is_set():
        with suppress(Kip30Error):
            found = storage.get("k")
            assert found is not None
            seen.append(found.version)


def _write_on(storage: Storage[str], stopping: threading.Event) -> None:
    while not stopping.wait(0.005):
        with suppress(Kip30Error):
            storage.update("k", "v")


def _put_on(
    storage: Storage[str], prefix: str, written: list[str], stopping: threading.Event
) -> None:
    """Put one key after the other, and record in *written* the acknowledged ones."""
    number = 0
    while not stopping.is_set():
        number += 1
        key = f"{prefix}-{number}"
        with suppress(Kip30Error):
            storage.put(key, key)
            written.append(key)


def _await_changes(seen: Sequence[Version], harness: Harness) -> None:
    """Wait until a reader has seen ten versions more."""
    before = set(seen)
    eventually(
        lambda: len(set(seen) - before) > 10,
        within=recovery_seconds(harness),
        what="changes are read",
    )
