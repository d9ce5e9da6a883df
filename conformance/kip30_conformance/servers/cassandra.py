"""Cassandra: one node, or a ring of three that all hold everything."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from typing_extensions import override

from kip30_conformance.neighbour.base import Neighbour
from kip30_conformance.servers.cql_probe import serves
from kip30_conformance.servers.ports import BEHIND, HOST
from kip30_conformance.servers.store import NodePorts, Plan, Store

_ANSWER_SECONDS = 2.0
_QUESTION = "SELECT role FROM system_auth.roles WHERE role = 'kip30'"
_TOKENS = range(-(2**63), 2**63)
_JAVA = (
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:MaxDirectMemorySize=128m",
    "-Dcassandra-foreground=yes",
    "-Dcassandra.ring_delay_ms=0",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.superuser_setup_delay_ms=500",
)


class Cassandra(Store):
    """No node leads. Nodes differ by their ports: all have the same address."""

    name = "cassandra"
    peer_ports = 1
    peers_behind = True
    round_trips: ClassVar[Mapping[str, int]] = {"nominate": 2}
    """Of a service that has written with a fence: the fences are raised before the claim."""
    elects = False
    _others = 0

    @override
    def prepare(self, command: Sequence[str], plan: Plan) -> list[str]:
        self._others = len(plan.places) - 1
        plan.data.mkdir(parents=True, exist_ok=True)
        configuration = plan.folder / "cassandra.yaml"
        configuration.write_text("".join(f"{line}\n" for line in _lines(plan)))
        java, *words = command
        return [java, *_JAVA, *_properties(plan, configuration.as_uri()), *words]

    @override
    def is_ready(self, place: NodePorts) -> bool:
        # A quorum serves before all nodes are connected; new tables then reach the last one late.
        return serves((HOST, place.client), _QUESTION, _ANSWER_SECONDS, peers=self._others)

    @override
    def is_leader(self, place: NodePorts) -> bool:
        return self.is_ready(place)

    @override
    def settings(self, addresses: str) -> dict[str, str]:
        return {"plugin.backend": self.name, "plugin.cassandra.contact.points": addresses}

    @override
    def neighbour(self, addresses: str, root: str) -> Neighbour:
        # It needs the vendor's client, which need not be installed to run servers.
        from kip30_conformance.neighbour.cassandra import CassandraNeighbour  # noqa: PLC0415

        return CassandraNeighbour(addresses, root)

    @override
    def link_settings(self, nodes: str, proxies: str) -> dict[str, str]:
        # A driver connects to the addresses that the nodes report of each other.
        pairs = zip(nodes.split(","), proxies.split(","), strict=True)
        mapping = ",".join(f"{node}={proxy}" for node, proxy in pairs)
        return {**self.settings(proxies), "plugin.cassandra.address.map": mapping}


def _properties(plan: Plan, configuration: str) -> Iterator[str]:
    yield f"-Dcassandra.config={configuration}"
    yield f"-Dcassandra.storagedir={plan.data}"
    for keyspace in ("auth", "distributed"):
        yield f"-Dcassandra.system_{keyspace}.default_rf={len(plan.places)}"


def _lines(plan: Plan) -> Iterator[str]:
    """Yield cassandra.yaml; of a key that is there twice the last value counts."""
    for key, value in _configuration(plan).items():
        yield f"{key}: {json.dumps(value)}"
    yield from plan.own_words


def _configuration(plan: Plan) -> dict[str, Any]:
    return {
        "cluster_name": "kip30",
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "num_tokens": 1,
        "initial_token": str(_TOKENS[plan.index * (2**64 // len(plan.places))]),
        "auto_bootstrap": False,
        "seed_provider": [_seeds(plan)],
        **_addresses(plan.place),
        **_folders(plan),
        **_sizes(),
        "endpoint_snitch": "SimpleSnitch",
        "dynamic_snitch": False,
        "paxos_variant": "v2",
        "auto_snapshot": False,
        "commitlog_sync": "batch",
    }


def _seeds(plan: Plan) -> dict[str, Any]:
    """Make every node a seed: one that is not does not start before one that is."""
    everybody = ",".join(f"{HOST}:{place.seen[0]}" for place in plan.places)
    return {
        "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
        "parameters": [{"seeds": everybody}],
    }


def _addresses(place: NodePorts) -> dict[str, Any]:
    return {
        "listen_address": BEHIND,
        "broadcast_address": HOST,
        "storage_port": place.seen[0],
        "rpc_address": HOST,
        "native_transport_port": place.client,
    }


def _folders(plan: Plan) -> dict[str, Any]:
    single = {
        f"{one}_directory": str(plan.data / one)
        for one in ("commitlog", "saved_caches", "hints", "cdc_raw")
    }
    return {"data_file_directories": [str(plan.data / "data")], **single}


def _sizes() -> dict[str, Any]:
    return {
        "memtable_heap_space": "32MiB",
        "memtable_offheap_space": "32MiB",
        "key_cache_size": "4MiB",
        "file_cache_size": "32MiB",
        "networking_cache_size": "16MiB",
        "commitlog_segment_size": "8MiB",
        "commitlog_total_space": "64MiB",
        "concurrent_reads": 8,
        "concurrent_writes": 8,
        "concurrent_counter_writes": 2,
    }
