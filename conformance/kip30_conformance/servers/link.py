"""The way of one client to all nodes of an ensemble, on which there can be trouble."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, Self

from kip30_conformance.servers.store import Store, addresses
from kip30_conformance.servers.supervisor_client import SupervisorClient

Side = Literal["client", "server"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What has passed a proxy since it was made, and what has not: the evidence of faults.

    Attributes:
        connections: How many were opened.
        resets: How many of them were reset by the proxy.
        round_trips: See `Link.round_trips`.
        to_client: Bytes that were let through.
        to_server: The same, the other way.
        dropped_to_client: Bytes that were lost.
        dropped_to_server: The same, the other way.
        held: Bytes, both ways, that had to wait for a `Link.half_open` to end.
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
        """Bytes that were lost, both ways."""
        return self.dropped_to_client + self.dropped_to_server

    def __add__(self, other: "Counts") -> "Counts":
        """Return both together."""
        return self._combined(other, 1)

    def __sub__(self, earlier: "Counts") -> "Counts":
        """Return what has been counted since *earlier*."""
        return self._combined(earlier, -1)

    def _combined(self, other: "Counts", sign: int) -> "Counts":
        names = [field.name for field in fields(self)]
        return Counts(**{name: getattr(self, name) + sign * getattr(other, name) for name in names})


def counts_from(told: Mapping[str, Any]) -> Counts:
    """Return what the supervisor reported about one route: *told*."""
    client, server = told["to_client"], told["to_server"]
    return Counts(
        connections=told["connections"],
        resets=told["resets"],
        round_trips=told["round_trips"],
        to_client=client["forwarded"],
        to_server=server["forwarded"],
        dropped_to_client=client["dropped"],
        dropped_to_server=server["dropped"],
        held=client["held"] + server["held"],
    )


class Link:
    """A proxy in front of each node, for one client alone.

    Every verb is about all nodes, or about those of the argument *nodes*, by their index. It
    holds for what is open and for what will be opened, until `heal`; several hold together.
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
        """Lose everything, both ways and in silence; who connects is accepted and not answered.

        Connections that have lost something are reset by `heal`, because nothing repeats what was
        lost; those that were idle go on.
        """
        self._strike("cut", nodes)

    def swallow_answers(self, *, nodes: Collection[int] | None = None) -> None:
        """Lose everything toward the client: requests are done, and never answered."""
        self._strike("swallow_answers", nodes)

    def half_open(self, toward: Side, *, nodes: Collection[int] | None = None) -> None:
        """Hold back everything *toward* one side; it arrives, late, after `heal`."""
        self._strike("half_open", nodes, toward=toward)

    def refuse(self, *, nodes: Collection[int] | None = None) -> None:
        """Reset what is open, and have who connects refused by the kernel."""
        self._strike("refuse", nodes)

    def delay(
        self, seconds: float, jitter: float = 0.0, *, nodes: Collection[int] | None = None
    ) -> None:
        """Let everything take *seconds* each way, more or less by up to *jitter*.

        What arrives meanwhile waits for its turn: a busy stream is up to twice as late.
        """
        self._strike("delay", nodes, seconds=seconds, jitter=jitter)

    def bandwidth(self, bytes_per_second: int, *, nodes: Collection[int] | None = None) -> None:
        """Let each connection carry no more than so many bytes a second, each way."""
        self._strike("bandwidth", nodes, bytes_per_second=bytes_per_second)

    def truncate(self, toward: Side = "client", *, nodes: Collection[int] | None = None) -> None:
        """Let half of the next bytes *toward* one side through, then reset the connection.

        So it is with every connection, until `heal`.
        """
        self._strike("truncate", nodes, toward=toward)

    def reset(self, *, nodes: Collection[int] | None = None) -> None:
        """Reset, on both sides, what is open now. New connections are not affected."""
        self._strike("reset", nodes)

    def heal(self, *, nodes: Collection[int] | None = None) -> None:
        """End all trouble."""
        self._strike("heal", nodes)

    def counted(self) -> Counts:
        """Return the counts of all nodes together."""
        return sum(self.counted_by_node(), Counts())

    def counted_by_node(self) -> list[Counts]:
        """Return the counts of each node."""
        return [counts_from(told) for told in self._supervisor.ask("counted", link=self._id)]

    def round_trips(self) -> int:
        """Return how often the client has asked and the server answered, since the link opened.

        What is counted is turns: bytes toward the server, in however many pieces, followed by
        bytes toward the client on the same connection. Requests that are sent before the first
        answer comes are one round trip, as they are in time; an answer in several pieces is one,
        and what a server sends unasked is none. Pings and window updates of HTTP/2 without TLS
        are not counted. Heartbeats of a store's own protocol are turns like others.
        """
        return self.counted().round_trips

    def close(self) -> None:
        """Give the proxies up, with what is open; in a forked child do nothing. Idempotent."""
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
