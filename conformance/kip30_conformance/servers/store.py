"""What an ensemble has to know of the store whose servers it runs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from kip30 import UnsupportedError
from kip30_conformance.servers.ports import HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one node is reached; all ports are on the loopback interface.

    Attributes:
        client: The port for clients.
        probe: A port for questions about the node itself, which need neither TLS nor a login.
        peers: The ports on which it listens to the other nodes.
        seen: What the others take for those: proxies in front of them.
    """

    client: int
    probe: int
    peers: tuple[int, ...]
    seen: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one node is configured from.

    Attributes:
        index: Which one of *places* is its own.
        places: All nodes of the ensemble.
        folder: Its own, for configuration and data.
        secure: Whether the port for clients speaks TLS.
        extra: Further lines or arguments, in the server's own language. ``{folder}`` stands for
            *folder*, ``{index}`` for *index*.
        environment: Variables that the server gets besides those of this process.
    """

    index: int
    places: Sequence[Place]
    folder: Path
    secure: bool = False
    extra: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def place(self) -> Place:
        """The node's own."""
        return self.places[self.index]

    @property
    def data(self) -> Path:
        """Where the server keeps what must outlive it."""
        return self.folder / "data"

    @property
    def own_words(self) -> list[str]:
        """*extra* with its placeholders filled in."""
        return [
            word.replace("{folder}", str(self.folder)).replace("{index}", str(self.index))
            for word in self.extra
        ]


class Store(ABC):
    """One kind of server."""

    name: ClassVar[str]
    peer_ports: ClassVar[int]
    """How many ports a node has for the other nodes."""
    round_trips: ClassVar[Mapping[str, int]] = {}
    """How many round trips those operations take that take more than one; see check G17."""
    peers_behind: ClassVar[bool] = False
    """Whether a node listens to the others at `Place.seen` of `BEHIND`, not at `Place.peers`."""
    datagrams: ClassVar[bool] = False
    """Whether nodes send each other datagrams as well, to the same ports."""
    elects: ClassVar[bool] = True
    """Whether one of the nodes leads."""
    session_seconds: ClassVar[float | None] = None
    """The session timeout that outlasts an election among nodes, if that of the suites does not."""

    @abstractmethod
    def prepare(self, command: Sequence[str], plan: Plan) -> list[str]:
        """Write what the node needs into its folder, and return the command that starts it.

        Called before every start, with the data of the last one, if any, in `Plan.data`.
        *command* is that of the installed server.
        """

    @abstractmethod
    def is_ready(self, place: Place) -> bool:
        """Say whether the node serves clients right now; ask it, and do not wait long."""

    @abstractmethod
    def is_leader(self, place: Place) -> bool:
        """Say whether the node says of itself that it leads."""

    @abstractmethod
    def settings(self, addresses: str) -> dict[str, str]:
        """Return the properties that reach ``host:port,host:port``."""

    def link_settings(self, nodes: str, proxies: str) -> dict[str, str]:
        """Return the properties that reach *nodes* through *proxies*, each before one of them."""
        del nodes
        return self.settings(proxies)

    def compact(self, place: Place) -> None:
        """Have the store forget all that it was before now.

        Raises:
            UnsupportedError: It does not remember.
        """
        del place
        raise UnsupportedError(f"{self.name} has no compaction")

    def masquerade(self, place: Place) -> dict[str, str]:
        """Return what peers must not hear of a node's own address, and what they hear instead.

        Both have the same length. It happens to what a node says first on a connection.
        """
        del place
        return {}


def addresses(ports: Sequence[int]) -> str:
    """Return *ports* of the loopback interface as ``host:port,host:port``."""
    return ",".join(f"{HOST}:{port}" for port in ports)
