"""Servers that work together, and faults between them."""

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self

from kip30_conformance.neighbour.base import Neighbour
from kip30_conformance.polling import eventually
from kip30_conformance.servers.link import Counts, Link, counts_from
from kip30_conformance.servers.node import Node
from kip30_conformance.servers.store import Store
from kip30_conformance.servers.supervisor_client import SupervisorClient

READY_SECONDS = 60.0


class Ensemble:
    """One server or several, on the loopback interface. Thread-safe; of no use after a fork.

    It ends with `close`, with its ``with`` block, and with the process that started it, however
    that ends.

    Attributes:
        name: Of the store.
        version: Of the servers.
        nodes: The servers.
    """

    def __init__(
        self, supervisor: SupervisorClient, store: Store, version: str, nodes: Sequence[Node]
    ) -> None:
        """Own *nodes*, and the supervisor that has them in *supervisor*."""
        self.name = store.name
        self.version = version
        self.nodes = nodes
        self._supervisor = supervisor
        self._store = store

    @property
    def warden_pid(self) -> int:
        """The process id of the supervisor, the parent of all servers."""
        return self._supervisor.pid

    @property
    def round_trips(self) -> Mapping[str, int]:
        """The number of round trips of each operation that takes more than one."""
        return self._store.round_trips

    @property
    def client_threads(self) -> int:
        """The maximum number of threads of a client that the driver has in place of a vendor's."""
        return self._store.client_threads

    @property
    def session_seconds(self) -> float | None:
        """The session timeout that these servers need, if there is any reason."""
        return self._store.session_seconds if len(self.nodes) > 1 else None

    def settings(self, *, first: int = 0) -> dict[str, str]:
        """Return the properties that reach the store, with no proxy in between.

        The nodes are named in their order, beginning with that of the index *first*, modulo their
        number.
        """
        return self._store.settings(self._addresses(first))

    def neighbour(self, root: str, *, first: int = 0) -> Neighbour:
        """Return another program, which writes to the namespace *root* past kip30.

        Nodes are listed to it as by `settings`.

        Raises:
            UnsupportedError: There is none for this store.
        """
        return self._store.neighbour(self._addresses(first), root)

    def await_ready(
        self, nodes: Collection[Node] | None = None, *, within: float = READY_SECONDS
    ) -> None:
        """Wait until *nodes*, or all, serve clients.

        Raises:
            AssertionError: They do not *within* that many seconds; the message ends with their
                logs.
        """
        waiting = list(self.nodes if nodes is None else nodes)
        try:
            eventually(
                lambda: all(node.is_ready() for node in waiting),
                within=within,
                what=f"{self.name} is ready",
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log_tails()}") from None

    def leader(self, *, within: float = READY_SECONDS) -> Node:
        """Wait until exactly one of the nodes that answer says that it leads, and return it.

        One that was isolated or stopped may believe for a moment that it still leads. In a store
        whose nodes are all alike, such as Cassandra, it is the first that serves.
        """
        return eventually(self._only_leader, within=within, what=f"{self.name} has one leader")

    def restart(self, *, empty: bool = False) -> None:
        """Kill all nodes, start them again, with their data or *empty*, and wait for all."""
        for node in self.nodes:
            node.kill()
        for node in self.nodes:
            node.restart(empty=empty)
        self.await_ready()

    @contextmanager
    def frozen(self) -> Generator[None]:
        """Stop all nodes (SIGSTOP) in the block."""
        with ExitStack() as stopped:
            for node in self.nodes:
                node.stop()
                stopped.callback(node.resume)
            yield

    def link(self) -> Link:
        """Return a new link to all nodes, for one client, which can inject faults."""
        return Link(self._supervisor, self._store, [node.port for node in self.nodes])

    def open_links(self) -> int:
        """Return how many links the supervisor keeps open."""
        count: int = self._supervisor.ask("links")
        return count

    def isolate(self, node: Node) -> None:
        """Drop everything between *node* and the other nodes; clients still reach it."""
        self._supervisor.ask("isolate", node=node.index)

    def separate(self, one: Node, other: Node) -> None:
        """Drop everything between two nodes."""
        self._supervisor.ask("separate", one=one.index, other=other.index)

    def heal(self) -> None:
        """End `isolate` and `separate`; connections that lost bytes are reset."""
        self._supervisor.ask("heal")

    def mend(self) -> None:
        """End all faults of the nodes and of the links between them, and wait until all serve."""
        for node in self.nodes:
            if not node.is_alive():
                node.restart()
            node.resume()
        self.heal()
        self.await_ready()

    def compact(self) -> None:
        """Make the store forget its history, except for the present state.

        Raises:
            UnsupportedError: It keeps no history.
        """
        self.nodes[0].compact()

    def peer_counts(self) -> dict[tuple[int, int], Counts]:
        """Return the traffic between two nodes, by the indexes of client and server.

        Here the node that has connected is the client.
        """
        counts = self._supervisor.ask("peer_counts")
        return {(one["from"], one["to"]): counts_from(one) for one in counts}

    def log_tails(self) -> str:
        """Return the end of every node's log."""
        return "\n".join(f"--- {node!r}\n{node.log_tail()}" for node in self.nodes)

    def close(self) -> None:
        """Kill all servers and release everything. Idempotent."""
        self._supervisor.end()

    def __enter__(self) -> Self:
        """Return the ensemble itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _addresses(self, first: int) -> str:
        begin = first % len(self.nodes)
        nodes = [*self.nodes[begin:], *self.nodes[:begin]]
        return ",".join(node.address for node in nodes)

    def _only_leader(self) -> Node | None:
        leaders = [node for node in self.nodes if node.is_leader()]
        if self._store.elects and len(leaders) > 1:
            return None
        return leaders[0] if leaders else None
