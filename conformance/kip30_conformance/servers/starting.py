"""Starting ensembles of any store."""

import os
import tempfile
from collections import ChainMap
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import entry_points
from pathlib import Path

from kip30 import ConfigError
from kip30.config import did_you_mean
from kip30_conformance.servers.cassandra import Cassandra
from kip30_conformance.servers.consul import Consul
from kip30_conformance.servers.ensemble import READY_SECONDS, Ensemble
from kip30_conformance.servers.etcd import Etcd
from kip30_conformance.servers.node import Node
from kip30_conformance.servers.store import NodePorts, Plan, Store
from kip30_conformance.servers.supervisor_client import SupervisorClient
from kip30_conformance.servers.zookeeper import Zookeeper

_STORES: tuple[type[Store], ...] = (Cassandra, Consul, Etcd, Zookeeper)
_GROUP = "kip30.servers"

STORES: Mapping[str, type[Store]] = {one.name: one for one in _STORES}
"""The stores of this repository whose servers can be started, by name."""

SIZES = Store.sizes
"""Numbers of nodes that an ensemble of theirs may have."""


def start(  # noqa: PLR0913  each says one thing about the servers
    name: str,
    nodes: int = 1,
    *,
    folder: Path | None = None,
    version: str | None = None,
    secure: bool = False,
    extra: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    within: float = READY_SECONDS,
) -> Ensemble:
    """Start servers and wait until all of them serve.

    They listen on the loopback interface, on unused ports, and are killed when this
    process ends, however it does.

    Args:
        name: ``cassandra``, ``consul``, ``etcd`` or ``zookeeper``, or the name of an entry point
            in the group ``kip30.servers``, which leads to a subclass of `Store`.
        nodes: How many: 1 or 3, or what `Store.sizes` says.
        folder: Gets configuration, data and logs, and must be empty or not there. Without one
            they go to a temporary folder that is removed in the end.
        version: Without one, the newest that is installed.
        secure: Make the clients' port use TLS, with certificates that *extra* names.
        extra: Other settings of the server: lines of ``zoo.cfg`` or ``cassandra.yaml``, or options
            of etcd or Consul. ``{folder}`` and ``{index}`` stand for the node's own.
        environment: Variables for the servers, such as ``JAVA_TOOL_OPTIONS``.
        within: Seconds within which they must serve.

    Raises:
        ServerMissingError: The server is not installed.
        ConfigError: There is no such store, or no such size. Nothing was started.
        AssertionError: The servers did not serve in time; the message ends with their logs.
            They were killed.
    """
    store = _store(name)
    if nodes not in store.sizes:
        sizes = " or ".join(map(str, store.sizes))
        raise ConfigError(f"an ensemble has {sizes} nodes, not {nodes}: ask for one of these")
    installed = store.installed(version)
    with ExitStack() as undoing:
        supervisor = SupervisorClient()
        undoing.callback(supervisor.end)
        home = folder or _temporary(supervisor)
        places = _places(store, nodes, supervisor)
        plans = [
            Plan(
                index=index,
                places=places,
                folder=home / f"node{index}",
                secure=secure,
                extra=extra,
                environment=environment or {},
            )
            for index in range(nodes)
        ]
        servers = [Node(supervisor, store, installed.command, plan) for plan in plans]
        ensemble = Ensemble(supervisor, store, installed.version, servers)
        for node in servers:
            node.start()
        ensemble.await_ready(within=within)
        undoing.pop_all()
    return ensemble


def attach(name: str, places: Sequence[NodePorts], version: str) -> Ensemble:
    """Return servers that another process has started, for clients and links of this one.

    They go on when it is closed. Only the process that started them can stop, kill and restart
    them: here that raises SupervisorError.

    Args:
        name: As for `start`.
        places: Those of the nodes: `Node.place`.
        version: Of the servers.

    Raises:
        ConfigError: There is no such store. No process was started.
    """
    store, supervisor = _store(name), SupervisorClient()
    plans = [
        Plan(index=index, places=places, folder=Path(os.devnull)) for index in range(len(places))
    ]
    return Ensemble(supervisor, store, version, [Node(supervisor, store, (), one) for one in plans])


def _store(name: str) -> Store:
    """Return what runs the servers of the store *name*: one of `STORES`, or an installed plugin."""
    if name in STORES:
        return STORES[name]()
    plugins = {one.name: one for one in entry_points(group=_GROUP)}
    if name not in plugins:
        known = [*STORES, *plugins]
        raise ConfigError(
            f"there are no servers for the store {name!r}{did_you_mean(name, known)}:"
            f" give one of {', '.join(known)}, or install a package with an entry point"
            f" {name!r} in the group {_GROUP!r}"
        )
    store: type[Store] = plugins[name].load()
    return store()


def _temporary(supervisor: SupervisorClient) -> Path:
    folder = tempfile.mkdtemp(prefix="kip30-servers-")
    supervisor.ask("clean_up", folder=folder)
    return Path(folder)


def _places(store: Store, nodes: int, supervisor: SupervisorClient) -> list[NodePorts]:
    """Find ports for all nodes, and put proxies between them."""
    own = 2 + store.peer_ports
    ports = supervisor.ask("hold_ports", count=nodes * own)
    rows = [ports[first : first + own] for first in range(0, len(ports), own)]
    seen = supervisor.ask(
        "open_peers",
        ports=[row[2:] for row in rows],
        behind=store.peers_behind,
        datagrams=store.datagrams,
    )
    places = [
        NodePorts(client=row[0], probe=row[1], peers=tuple(row[2:]), seen=tuple(proxies))
        for row, proxies in zip(rows, seen, strict=True)
    ]
    supervisor.ask("disguise", masquerade=dict(ChainMap(*map(store.masquerade, places))))
    return places
