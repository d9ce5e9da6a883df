"""The link of one client to all nodes of an ensemble, which can inject faults."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from kip30_conformance.servers.store import Store, addresses
from kip30_conformance.servers.supervisor_client import SupervisorClient

Side = Literal["client", "server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The traffic of a proxy since it was made, passed and dropped: the evidence of faults.

    Attributes:
        connections: How many were opened.
        resets: How many of them were reset by the proxy.
        round_trips: See `Link.round_trips`.
        to_client: Bytes that passed.
        to_server: The same, the other way.
        dropped_to_client: Bytes that were dropped.
        dropped_to_server: The same, the other way.
        held: Bytes, both ways, that waited for a `Link.half_open` to end.
    """

    connections: int = 0
    resets: int = 0
    round_trips: int = 0
    to_client: int = 0
    to_server: int = 0
    dropped_to_client: int = 0
    dropped_to_server: int = 0
    held: int = 0

    @property
    def dropped(self) -> int:
        """Bytes that were dropped, both ways."""
        return self.dropped_to_client + self.dropped_to_server

    def __add__(self, other: "Counts") -> "Counts":
        """Return both together."""
        return self._combined(other, 1)

    def __sub__(self, earlier: "Counts") -> "Counts":
        """Return the difference from *earlier*."""
        return self._combined(earlier, -1)

    def _combined(self, other: "Counts", sign: int) -> "Counts":
        names = [field.name for field in fields(self)]
        return Counts(**{name: getattr(self, name) + sign * getattr(other, name) for name in names})


def counts_from(counted: Mapping[str, Any]) -> Counts:
    """Return the supervisor's counts of one route: *counted*."""
    client, server = counted["to_client"], counted["to_server"]
    return Counts(
        connections=counted["connections"],
        resets=counted["resets"],
        round_trips=counted["round_trips"],
        to_client=client["forwarded"],
        to_server=server["forwarded"],
        dropped_to_client=client["dropped"],
        dropped_to_server=server["dropped"],
        held=client["held"] + server["held"],
    )


class Link:
    """A proxy in front of each node, for one client alone.

    Every verb applies to all nodes, or to those of the argument *nodes*, by their index. It applies
    to open and to later connections, until `heal`; several apply together.
    """

    def __init__(self, supervisor: SupervisorClient, store: Store, ports: Collection[int]) -> None:
        """Open proxies to *ports*."""
        opened = supervisor.ask("open_link", ports=list(ports))
        self.ports: list[int] = opened["ports"]
        self._id: int = opened["link"]
        self._supervisor = supervisor
        self._store = store
        self._nodes = addresses(list(ports))

    def settings(self) -> dict[str, str]:
        """Return the properties that reach the store by this link."""
        return self._store.link_settings(self._nodes, addresses(self.ports))

    def cut(self, *, nodes: Collection[int] | None = None) -> None:
        """Drop everything silently, both ways; new connections are accepted and not answered.

        `heal` resets connections that have lost bytes, because nothing sends these again; idle ones
        continue.
        """
        self._strike("cut", nodes)

    def swallow_answers(self, *, nodes: Collection[int] | None = None) -> None:
        """Drop everything toward the client: requests are done, and never answered."""
        self._strike("swallow_answers", nodes)

    def half_open(self, toward: Side, *, nodes: Collection[int] | None = None) -> None:
        """Hold back everything *toward* one side; it arrives late, after `heal`."""
        self._strike("half_open", nodes, toward=toward)

    def refuse(self, *, nodes: Collection[int] | None = None) -> None:
        """Reset open connections, and let the kernel refuse new ones."""
        self._strike("refuse", nodes)

    def delay(
        self, seconds: float, jitter: float = 0.0, *, nodes: Collection[int] | None = None
    ) -> None:
        """Delay everything by *seconds* each way, give or take up to *jitter*.

        Later bytes wait for their turn: a busy stream is up to twice as late.
        """
        self._strike("delay", nodes, seconds=seconds, jitter=jitter)

    def bandwidth(self, bytes_per_second: int, *, nodes: Collection[int] | None = None) -> None:
        """Limit each connection to a number of bytes a second, each way."""
        self._strike("bandwidth", nodes, bytes_per_second=bytes_per_second)

    def truncate(self, toward: Side = "client", *, nodes: Collection[int] | None = None) -> None:
        """Let half of the next bytes *toward* one side through, then reset the connection.

        This applies to every connection, until `heal`.
        """
        self._strike("truncate", nodes, toward=toward)

    def reset(self, *, nodes: Collection[int] | None = None) -> None:
        """Reset open connections on both sides. New connections are not affected."""
        self._strike("reset", nodes)

    def heal(self, *, nodes: Collection[int] | None = None) -> None:
        """End all faults."""
        self._strike("heal", nodes)

    def counted(self) -> Counts:
        """Return the counts of all nodes together."""
        return sum(self.counted_by_node(), Counts())

    def counted_by_node(self) -> list[Counts]:
        """Return the counts of each node."""
        return [counts_from(counted) for counted in self._supervisor.ask("counted", link=self._id)]

    def round_trips(self) -> int:
        """Return how often the client has asked and the server answered, since the link opened.

        It counts turns: bytes toward the server, in however many pieces, followed by bytes toward
        the client on the same connection. Requests that are sent before the first answer arrives
        are one round trip, as they are in time; an answer in several pieces is one, and bytes that
        a server sends without a request are none. Pings and window updates of HTTP/2 without TLS
        are not counted. Heartbeats of a store's own protocol are turns like others.
        """
        return self.counted().round_trips

    def close(self) -> None:
        """Close the proxies and their connections; in a forked child do nothing. Idempotent."""
        if self._supervisor.is_ours:
            self._supervisor.ask("close_link", link=self._id)

    def __enter__(self) -> Self:
        """Return the link itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _strike(self, fault: str, nodes: Collection[int] | None, **how: Any) -> None:
        chosen = None if nodes is None else list(nodes)
        self._supervisor.ask("strike", link=self._id, fault=fault, nodes=chosen, how=how)
