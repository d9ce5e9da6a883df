"""Servers that work together, and the trouble they can have with each other."""

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Self

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
        """How many round trips those operations take that take more than one."""
        return self._store.round_trips

    @property
    def session_seconds(self) -> float | None:
        """The session timeout that these servers ask for, if there is any reason."""
        return self._store.session_seconds if len(self.nodes) > 1 else None

    def settings(self, *, first: int = 0) -> dict[str, str]:
        """Return the properties that reach the store, with no proxy in between.

        The nodes are named in their order, beginning with that of the index *first*, modulo their
        number.
        """
        begin = first % len(self.nodes)
        nodes = [*self.nodes[begin:], *self.nodes[:begin]]
        return self._store.settings(",".join(node.address for node in nodes))

    def await_ready(
        self, nodes: Collection[Node] | None = None, *, within: float = READY_SECONDS
    ) -> None:
        """Wait until *nodes*, or all, serve clients.

        Raises:
            AssertionError: Not *within* so many seconds; the message ends with their logs.
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

        One that was isolated or stopped may believe for a moment that it still does. Of a store
        whose nodes are all alike, as Cassandra's are, it is the first that serves.
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
        """Stop all nodes (SIGSTOP) for the time of a with-block."""
        with ExitStack() as stopped:
            for node in self.nodes:
                node.stop()
                stopped.callback(node.resume)
            yield

    def link(self) -> Link:
        """Return a new way to all nodes, for one client, on which there can be trouble."""
        return Link(self._supervisor, self._store, [node.port for node in self.nodes])

    def open_links(self) -> int:
        """Return how many links the supervisor keeps open."""
        count: int = self._supervisor.ask("links")
        return count

    def isolate(self, node: Node) -> None:
        """Lose everything between *node* and the other nodes; clients still reach it."""
        self._supervisor.ask("isolate", node=node.index)

    def separate(self, one: Node, other: Node) -> None:
        """Lose everything between two nodes."""
        self._supervisor.ask("separate", one=one.index, other=other.index)

    def heal(self) -> None:
        """End `isolate` and `separate`; what has lost something is reset."""
        self._supervisor.ask("heal")

    def mend(self) -> None:
        """End all faults of the nodes and of what is between them, and wait until all serve."""
        for node in self.nodes:
            if not node.is_alive():
                node.restart()
            node.resume()
        self.heal()
        self.await_ready()

    def compact(self) -> None:
        """Have the store forget all of its past but the present state.

        Raises:
            UnsupportedError: It keeps no past.
        """
        self.nodes[0].compact()

    def peer_counts(self) -> dict[tuple[int, int], Counts]:
        """Return what has passed between two nodes, by the index of who connects to whom.

        In this, the one that has connected is the client.
        """
        told = self._supervisor.ask("peer_counts")
        return {(one["from"], one["to"]): counts_from(one) for one in told}

    def log_tails(self) -> str:
        """Return the end of every node's log."""
        return "\n".join(f"--- {node!r}\n{node.log_tail()}" for node in self.nodes)

    def close(self) -> None:
        """Kill all servers and give everything up. Idempotent."""
        self._supervisor.end()

    def __enter__(self) -> Self:
        """Return the ensemble itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _only_leader(self) -> Node | None:
        leaders = [node for node in self.nodes if node.is_leader()]
        if self._store.elects and len(leaders) > 1:
            return None
        return leaders[0] if leaders else None
