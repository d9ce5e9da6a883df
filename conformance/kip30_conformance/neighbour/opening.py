"""The neighbour of a store, by the name of the store."""

from collections.abc import Mapping
from pathlib import Path

from kip30 import UnsupportedError
from kip30_conformance.neighbour.base import Neighbour


def open_neighbour(settings: Mapping[str, object], root: str) -> Neighbour:
    """Return a neighbour in the namespace *root* of the store that *settings* reach.

    Raises:
        UnsupportedError: There is none for this store.
    """
    # Each needs the client of one vendor, which need not be installed for the others.
    match settings.get("plugin.backend"):
        case "zookeeper":
            from kip30_conformance.neighbour.zookeeper import (  # noqa: PLC0415
                ZookeeperNeighbour,
            )

            return ZookeeperNeighbour(str(settings["zookeeper.connect"]), root)
        case "etcd":
            from kip30_conformance.neighbour.etcd import EtcdNeighbour  # noqa: PLC0415

            return EtcdNeighbour(str(settings["plugin.etcd.endpoints"]), root)
        case "consul":
            from kip30_conformance.neighbour.consul import ConsulNeighbour  # noqa: PLC0415

            return ConsulNeighbour(str(settings["plugin.consul.address"]), root)
        case "cassandra":
            from kip30_conformance.neighbour.cassandra import (  # noqa: PLC0415
                CassandraNeighbour,
            )

            addresses = str(settings["plugin.cassandra.contact.points"])
            return CassandraNeighbour(addresses, root)
        case "embedded":
            from kip30_conformance.neighbour.embedded import EmbeddedNeighbour  # noqa: PLC0415

            directory = Path(str(settings["plugin.embedded.directory"]))
            return EmbeddedNeighbour(directory / "kip30.db", root)
        case other:
            raise UnsupportedError(f"no program to write beside kip30 in store {other!r}")
