"""The base of the suites about faults of real servers."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple, Protocol

import pytest

from kip30 import Kip30Error, PluginLocator
from kip30.config import Written
from kip30_conformance.harness import Harness
from kip30_conformance.servers import Ensemble, Link, Node
from kip30_conformance.suite import Suite, supported

_ELECTION_SECONDS = 5.0


class Linked(NamedTuple):
    """A client, and the way it has to the servers."""

    client: PluginLocator
    link: Link


class OpenLinked(Protocol):
    """Opens a client with a link of its own; both are closed when the check ends."""

    def __call__(self, *, only: Collection[Node] = (), **more: Written) -> Linked:
        """Open one with *more* properties, that can reach *only* these nodes until a heal."""
        ...


class ServerSuite(Suite):
    """Base of the suites that harm servers; afterwards they all work again."""

    @pytest.fixture
    def servers(self, harness: Harness) -> Iterator[Ensemble]:
        """Yield the servers; without any, skip the check."""
        servers = supported(harness.servers)
        yield servers
        servers.mend()

    @pytest.fixture
    def three(self, servers: Ensemble) -> Ensemble:
        """Return servers of which one can be spared; without, skip the check."""
        if len(servers.nodes) < 3:
            pytest.skip("takes three servers")
        return servers

    @pytest.fixture
    def open_linked(self, harness: Harness, root: str, servers: Ensemble) -> Iterator[OpenLinked]:
        """Yield a factory of clients whose links can be harmed."""
        with ExitStack() as opened:

            def open_one(*, only: Collection[Node] = (), **more: Written) -> Linked:
                link = opened.enter_context(servers.link())
                if only:
                    link.refuse(nodes=[node.index for node in servers.nodes if node not in only])
                properties: dict[str, Any] = {**link.settings(), **more}
                client = opened.enter_context(harness.open(root, **properties))
                opened.callback(link.heal)
                return Linked(client, link)

            yield open_one

    @pytest.fixture
    def linked(self, open_linked: OpenLinked) -> Linked:
        """Return one such client."""
        return open_linked()


def recovery_seconds(harness: Harness) -> float:
    """Return within how many seconds everything works again after the last fault of servers.

    They may have to elect a leader first; then sessions expire, and claims are made again.
    """
    return _ELECTION_SECONDS + harness.crash_patience


def connected_node(linked: Linked, servers: Ensemble) -> Node:
    """Return the node that answers a client's calls."""
    before = linked.link.counted_by_node()
    for _ in range(10):
        linked.client.storage().get("asked")
    after = linked.link.counted_by_node()
    answers = [new.round_trips - old.round_trips for new, old in zip(after, before, strict=True)]
    return servers.nodes[answers.index(max(answers))]


def can_read(client: PluginLocator) -> bool:
    """Return whether a read succeeds now."""
    with suppress(Kip30Error):
        client.storage().get("asked")
        return True
    return False


def follower(servers: Ensemble) -> Node:
    """Return a node that does not lead the others."""
    leader = servers.leader()
    return next(node for node in servers.nodes if node is not leader)


ROLES: Mapping[str, Callable[[Ensemble], Node]] = {"leader": Ensemble.leader, "follower": follower}
"""Functions that choose a server, by its role among the others."""
