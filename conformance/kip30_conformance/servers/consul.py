"""Consul: one server or three, whose sessions may be short."""

import http.client
import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from typing_extensions import override

from kip30_conformance.servers.ports import BEHIND, HOST
from kip30_conformance.servers.store import Place, Plan, Store

_ANSWER_SECONDS = 1.0
_OFF = -1
_SUSPICION_SECONDS = 12
_SERVED = {http.client.OK, http.client.NOT_FOUND, http.client.FORBIDDEN}


class Consul(Store):
    """A read that asks for consistency tells whether a server serves: it takes a quorum."""

    name = "consul"
    peer_ports = 2
    peers_behind = True
    datagrams = True
    # A leader steps down after half a second without the others, and the next one is elected up to
    # two seconds after that: no setting makes it less. With what servers have by default it is five
    # times as long, and the shortest session is 20 s.
    session_seconds = 6.0

    @override
    def prepare(self, command: Sequence[str], plan: Plan) -> list[str]:
        plan.data.mkdir(parents=True, exist_ok=True)
        configuration = plan.folder / "consul.json"
        configuration.write_text(json.dumps(_configuration(plan), indent=2))
        return [*command, "agent", f"-config-file={configuration}", *plan.own_words]

    @override
    def is_ready(self, place: Place) -> bool:
        try:
            return _asked(place, "/v1/kv/kip30-ready?consistent")[0] in _SERVED
        except (OSError, http.client.HTTPException):
            return False

    @override
    def is_leader(self, place: Place) -> bool:
        try:
            answer = _asked(place, "/v1/status/leader")
        except (OSError, http.client.HTTPException):
            return False
        return answer == (http.client.OK, json.dumps(f"{HOST}:{place.seen[0]}"))

    @override
    def settings(self, addresses: str) -> dict[str, str]:
        return {"plugin.backend": self.name, "plugin.consul.address": addresses}


def _configuration(plan: Plan) -> dict[str, Any]:
    return {
        "server": True,
        "bootstrap_expect": len(plan.places),
        "node_name": f"node{plan.index}",
        # A node that comes back empty is still the one that the others know by its name.
        "node_id": f"00000000-0000-4000-8000-{plan.index:012}",
        "data_dir": str(plan.data),
        "client_addr": HOST,
        "bind_addr": BEHIND,
        "advertise_addr": HOST,
        "ports": _ports(plan),
        "retry_join": [f"{HOST}:{place.seen[1]}" for place in plan.places],
        "retry_interval": "1s",
        "performance": {"raft_multiplier": 1},
        # Who is given up is called again once in half a minute: not after a short separation.
        "gossip_lan": {"suspicion_mult": _SUSPICION_SECONDS},
        "connect": {"enabled": False},
        "disable_update_check": True,
        "leave_on_terminate": False,
        "session_ttl_min": "1s",
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


def _asked(place: Place, path: str) -> tuple[int, str]:
    """Return status and content, from the port for probes if there is one."""
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
