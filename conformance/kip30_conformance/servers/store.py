"""The interface between an ensemble and the store whose servers it runs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from kip30 import UnsupportedError
from kip30_conformance.neighbour.base import Neighbour
from kip30_conformance.servers.installed import Installed, find
from kip30_conformance.servers.ports import HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePorts:
    """The addresses of one node; all ports are on the loopback interface.

    Attributes:
        client: The port for clients.
        probe: A port for probes of the node itself, which needs neither TLS nor a login.
        peers: The ports on which it listens to the other nodes.
        seen: The ports that the others use instead: proxies in front of them.
    """

    client: int
    probe: int
    peers: tuple[int, ...]
    seen: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The data from which one node is configured.

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
    places: Sequence[NodePorts]
    folder: Path
    secure: bool = False
    extra: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def place(self) -> NodePorts:
        """The node's own."""
        return self.places[self.index]

    @property
    def data(self) -> Path:
        """The folder of the data that must outlive the server."""
        return self.folder / "data"

    @property
    def own_words(self) -> list[str]:
        """*extra* with its placeholders filled in."""
        return [
            word.replace("{folder}", str(self.folder)).replace("{index}", str(self.index))
            for word in self.extra
        ]


class Store(ABC):
    """One kind of server. A package names its own in the entry-point group ``kip30.servers``."""

    name: ClassVar[str]
    """The name that operators write as ``--server``."""
    peer_ports: ClassVar[int]
    """Number of a node's ports for the other nodes, each with a proxy before it; 0 if it has none.

    They come in `NodePorts.peers`; the other nodes must connect to `NodePorts.seen` instead.
    """
    round_trips: ClassVar[Mapping[str, int]] = {}
    """Round trips of the operations that take more than one, by operation; see check G17."""
    peers_behind: ClassVar[bool] = False
    """True if a node listens to the others at `NodePorts.seen` of `BEHIND`, not at its `peers`."""
    datagrams: ClassVar[bool] = False
    """True if nodes send each other datagrams as well, to the same ports."""
    elects: ClassVar[bool] = True
    """True if one of the nodes leads. If not, `Ensemble.leader` is the first that `is_leader`."""
    session_seconds: ClassVar[float | None] = None
    """The session timeout that outlasts an election among nodes, if that of the suites does not."""
    client_threads: ClassVar[int] = 0
    """Threads, at most, of a client that the driver has in place of a vendor's; see check G40."""
    sizes: ClassVar[Sequence[int]] = (1, 3)
    """Numbers of nodes that an ensemble may have. Without 3, checks that take three are skipped."""

    def installed(self, version: str | None) -> Installed:
        """Return the server on this machine, the newest one unless a *version* is given.

        The default is one that ``kip30 servers install`` has put there.

        Raises:
            ServerMissingError: It is not installed. The message says how to install it.
        """
        return find(self.name, version)

    @abstractmethod
    def prepare(self, command: Sequence[str], plan: Plan) -> list[str]:
        """Write the node's files into its folder, and return the command that starts it.

        Called before every start, with the data of the last one, if any, in `Plan.data`.
        *command* is that of the installed server. One that refuses to run as root, or wants a
        folder of mode 0700, gets that here: make the folder, and return a command that changes the
        user, such as ``setpriv --pdeathsig=KILL --reuid=...``: the kernel forgets at a change of
        the user that the server must not outlive the supervisor.
        """

    @abstractmethod
    def is_ready(self, place: NodePorts) -> bool:
        """Return whether the node serves clients right now; probe it, with a short timeout."""

    @abstractmethod
    def is_leader(self, place: NodePorts) -> bool:
        """Return whether the node reports that it leads."""

    @abstractmethod
    def settings(self, addresses: str) -> dict[str, str]:
        """Return the properties that reach ``host:port,host:port``."""

    def link_settings(self, nodes: str, proxies: str) -> dict[str, str]:
        """Return the properties that reach *nodes* through *proxies*, each before one of them."""
        del nodes
        return self.settings(proxies)

    def neighbour(self, addresses: str, root: str) -> Neighbour:
        """Return a program that writes at ``host:port,host:port`` past kip30, for N04 to N13.

        Args:
            addresses: All nodes; it may use the first one alone.
            root: The namespace of the configuration, ``plugin.namespace``, in which it writes.

        Raises:
            UnsupportedError: There is none. The checks that need one are skipped.
        """
        del addresses, root
        raise UnsupportedError(f"servers of {self.name} come with no other program that writes")

    def compact(self, place: NodePorts) -> None:
        """Make the store forget its history up to now.

        Raises:
            UnsupportedError: It keeps no history.
        """
        del place
        raise UnsupportedError(f"{self.name} has no compaction")

    def masquerade(self, place: NodePorts) -> dict[str, str]:
        """Return texts of a node's own address, and the texts that peers must receive instead.

        Both have the same length. They are replaced in a node's first bytes on a connection.
        """
        del place
        return {}


def addresses(ports: Sequence[int]) -> str:
    """Return *ports* of the loopback interface as ``host:port,host:port``."""
    return ",".join(f"{HOST}:{port}" for port in ports)
