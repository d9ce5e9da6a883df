"""etcd: one member or three, with quick elections."""

import http.client
import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from typing_extensions import override

from kip30_conformance.neighbour.base import Neighbour
from kip30_conformance.servers.ports import HOST
from kip30_conformance.servers.store import NodePorts, Plan, Store

_ANSWER_SECONDS = 1.0
_ANY_KEY = "AA=="
_LEADS = "etcd_server_is_leader 1"


class Etcd(Store):
    """Health and metrics are served on a separate port, which requires no certificate."""

    name = "etcd"
    peer_ports = 1

    @override
    def prepare(self, command: Sequence[str], plan: Plan) -> list[str]:
        place, scheme = plan.place, "https" if plan.secure else "http"
        client = f"{scheme}://{HOST}:{place.client}"
        options = {
            "name": _member(plan.index),
            "data-dir": plan.data,
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-metrics-urls": f"http://{HOST}:{place.probe}",
            "listen-peer-urls": f"http://{HOST}:{place.peers[0]}",
            "initial-advertise-peer-urls": _seen(place),
            "initial-cluster": _members(plan.places),
            "heartbeat-interval": 50,
            "election-timeout": 500,
        }
        words = [f"--{name}={value}" for name, value in options.items()]
        return [*command, *words, *plan.own_words]

    @override
    def is_ready(self, place: NodePorts) -> bool:
        try:
            health: dict[str, str] = json.loads(_asked(place, "/health"))
            return health.get("health") == "true" and not health.get("reason")
        except (OSError, http.client.HTTPException, ValueError):
            return False

    @override
    def is_leader(self, place: NodePorts) -> bool:
        try:
            return _LEADS in _asked(place, "/metrics").splitlines()
        except (OSError, http.client.HTTPException):
            return False

    @override
    def settings(self, addresses: str) -> dict[str, str]:
        return {"plugin.backend": self.name, "plugin.etcd.endpoints": addresses}

    @override
    def neighbour(self, addresses: str, root: str) -> Neighbour:
        # It needs the vendor's client, which need not be installed to run servers.
        from kip30_conformance.neighbour.etcd import EtcdNeighbour  # noqa: PLC0415

        return EtcdNeighbour(addresses, root)

    @override
    def compact(self, place: NodePorts) -> None:
        header = _request(place, "/v3/kv/range", {"key": _ANY_KEY})["header"]
        _request(place, "/v3/kv/compaction", {"revision": header["revision"], "physical": True})


def _member(index: int) -> str:
    return f"node{index}"


def _seen(place: NodePorts) -> str:
    return f"http://{HOST}:{place.seen[0]}"


def _members(places: Sequence[NodePorts]) -> str:
    return ",".join(f"{_member(index)}={_seen(place)}" for index, place in enumerate(places))


def _asked(place: NodePorts, path: str) -> str:
    connection = http.client.HTTPConnection(HOST, place.probe, timeout=_ANSWER_SECONDS)
    with closing(connection):
        connection.request("GET", path)
        return connection.getresponse().read().decode()


def _request(place: NodePorts, path: str, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer of the gateway that speaks JSON to clients without TLS."""
    connection = http.client.HTTPConnection(HOST, place.client, timeout=_ANSWER_SECONDS)
    with closing(connection):
        connection.request("POST", path, json.dumps(request))
        answer = connection.getresponse()
        content: dict[str, Any] = json.loads(answer.read())
    assert answer.status == http.client.OK, content
    return content
