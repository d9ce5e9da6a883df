"""Consul: one server or three, whose sessions may be short."""

import http.client
import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from typing_extensions import override

from kip30_conformance.neighbour.base import Neighbour
from kip30_conformance.servers.ports import BEHIND, HOST
from kip30_conformance.servers.store import NodePorts, Plan, Store

_ANSWER_SECONDS = 1.0
_OFF = -1
_SUSPICION_SECONDS = 12
_MOST_CONNECTIONS = 2000
_SERVED = {http.client.OK, http.client.NOT_FOUND, http.client.FORBIDDEN}


class Consul(Store):
    """A consistent read shows whether a server serves: it takes a quorum."""

    name = "consul"
    peer_ports = 2
    peers_behind = True
    datagrams = True
    # A leader steps down after half a second without the others, and the next one is elected up to
    # two seconds after that: no setting makes it less. With the servers' defaults it takes five
    # times as long, and the shortest session is 20 s.
    session_seconds = 6.0
    # Four for requests, and nine for blocking queries: four of single targets, two of the first
    # namespaces, groups or services, and one of all of each kind.
    client_threads = 13

    @override
    def prepare(self, command: Sequence[str], plan: Plan) -> list[str]:
        plan.data.mkdir(parents=True, exist_ok=True)
        configuration = plan.folder / "consul.json"
        configuration.write_text(json.dumps(_configuration(plan), indent=2))
        return [*command, "agent", f"-config-file={configuration}", *plan.own_words]

    @override
    def is_ready(self, place: NodePorts) -> bool:
        try:
            return _asked(place, "/v1/kv/kip30-ready?consistent")[0] in _SERVED
        except (OSError, http.client.HTTPException):
            return False

    @override
    def is_leader(self, place: NodePorts) -> bool:
        try:
            answer = _asked(place, "/v1/status/leader")
        except (OSError, http.client.HTTPException):
            return False
        return answer == (http.client.OK, json.dumps(f"{HOST}:{place.seen[0]}"))

    @override
    def settings(self, addresses: str) -> dict[str, str]:
        return {"plugin.backend": self.name, "plugin.consul.address": addresses}

    @override
    def neighbour(self, addresses: str, root: str) -> Neighbour:
        # It needs the vendor's client, which need not be installed to run servers.
        from kip30_conformance.neighbour.consul import ConsulNeighbour  # noqa: PLC0415

        return ConsulNeighbour(addresses, root)


def _configuration(plan: Plan) -> dict[str, Any]:
    return {
        "server": True,
        "bootstrap_expect": len(plan.places),
        "node_name": f"node{plan.index}",
        # A node that restarts empty is still the one that the others know by its name.
        "node_id": f"00000000-0000-4000-8000-{plan.index:012}",
        "data_dir": str(plan.data),
        "client_addr": HOST,
        "bind_addr": BEHIND,
        "advertise_addr": HOST,
        "ports": _ports(plan),
        "retry_join": [f"{HOST}:{place.seen[1]}" for place in plan.places],
        "retry_interval": "1s",
        "performance": {"raft_multiplier": 1},
        # Servers reconnect to a peer that they gave up only after half a minute: too late for a
        # short separation.
        "gossip_lan": {"suspicion_mult": _SUSPICION_SECONDS},
        "connect": {"enabled": False},
        "disable_update_check": True,
        "leave_on_terminate": False,
        "session_ttl_min": "1s",
        # The clients of all tests are on one machine: with the default of 200 a server that many
        # tests share refuses some.
        "limits": {"http_max_conns_per_client": _MOST_CONNECTIONS},
        "log_level": "WARN",
    }


def _ports(plan: Plan) -> dict[str, int]:
    place = plan.place
    server, serf = place.seen
    clients = (
        {"https": place.client, "http": place.probe} if plan.secure else {"http": place.client}
    )
    off = dict.fromkeys(("grpc", "grpc_tls", "dns", "serf_wan"), _OFF)
    return {**clients, **off, "server": server, "serf_lan": serf}


def _asked(place: NodePorts, path: str) -> tuple[int, str]:
    """Return status and content, from the probe port if there is one."""
    try:
        return _got(place.probe, path)
    except ConnectionRefusedError:
        return _got(place.client, path)


def _got(port: int, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=_ANSWER_SECONDS)
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
