"""ZooKeeper: one server or an ensemble of three, with short ticks."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from typing_extensions import override

from kip30_conformance.neighbour.base import Neighbour
from kip30_conformance.servers.ports import HOST
from kip30_conformance.servers.store import NodePorts, Plan, Store

_ANSWER_SECONDS = 1.0
_JAVA = (
    # One collector without threads, and the quick compiler alone: most servers live for seconds.
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    # A vote that was lost is repeated after at most this time, instead of up to a minute.
    "-Dzookeeper.fastleader.maxNotificationInterval=1000",
)
_LINES = (
    "tickTime=500",
    "initLimit=20",
    "syncLimit=4",
    "maxSessionTimeout=60000",
    "maxClientCnxns=0",
    "admin.enableServer=false",
    "4lw.commands.whitelist=*",
)


class Zookeeper(Store):
    """A server answers the command ``srvr`` with whether it serves, and in which mode."""

    name = "zookeeper"
    peer_ports = 2
    round_trips: ClassVar[Mapping[str, int]] = {"membership": 2, "leave": 2}

    @override
    def prepare(self, command: Sequence[str], plan: Plan) -> list[str]:
        plan.data.mkdir(parents=True, exist_ok=True)
        (plan.data / "myid").write_text(f"{plan.index + 1}\n")
        configuration = plan.folder / "zoo.cfg"
        configuration.write_text("".join(f"{line}\n" for line in _configuration(plan)))
        java, *words = command
        return [java, *_JAVA, *words, str(configuration)]

    @override
    def is_ready(self, place: NodePorts) -> bool:
        return _mode(place) != ""

    @override
    def is_leader(self, place: NodePorts) -> bool:
        return _mode(place) in {"leader", "standalone"}

    @override
    def settings(self, addresses: str) -> dict[str, str]:
        return {"plugin.backend": self.name, "zookeeper.connect": addresses}

    @override
    def neighbour(self, addresses: str, root: str) -> Neighbour:
        # It needs the vendor's client, which need not be installed to run servers.
        from kip30_conformance.neighbour.zookeeper import ZookeeperNeighbour  # noqa: PLC0415

        return ZookeeperNeighbour(addresses, root)

    @override
    def masquerade(self, place: NodePorts) -> dict[str, str]:
        # A server announces where it takes part in elections, and others connect there.
        return {f"{HOST}:{own}": f"{HOST}:{seen}" for own, seen in _pairs(place)}


def _configuration(plan: Plan) -> Iterator[str]:
    yield from _LINES
    yield f"dataDir={plan.data}"
    yield f"clientPortAddress={HOST}"
    if plan.secure:
        yield f"secureClientPortAddress={HOST}"
        yield f"secureClientPort={plan.place.client}"
        yield f"clientPort={plan.place.probe}"
    else:
        yield f"clientPort={plan.place.client}"
    if len(plan.places) > 1:
        yield from _ensemble(plan)
    yield from plan.own_words


def _ensemble(plan: Plan) -> Iterator[str]:
    for index, place in enumerate(plan.places):
        ports = place.peers if index == plan.index else place.seen
        yield f"server.{index + 1}={':'.join([HOST, *map(str, ports)])}"


def _pairs(place: NodePorts) -> Iterator[tuple[int, int]]:
    return zip(place.peers, place.seen, strict=True)


def _mode(place: NodePorts) -> str:
    """Return the mode that the server reports, or nothing if it does not serve."""
    answer = _asked(place.probe) or _asked(place.client)
    lines = (line.partition(": ") for line in answer.splitlines())
    return next((mode for key, _, mode in lines if key == "Mode"), "")


def _asked(port: int) -> str:
    try:
        with socket.create_connection((HOST, port), _ANSWER_SECONDS) as connection:
            connection.sendall(b"srvr")
            return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    except OSError:
        return ""
