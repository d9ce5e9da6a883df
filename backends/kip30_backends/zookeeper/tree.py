"""Where things are in ZooKeeper's tree, how they are made, and how records are kept in nodes.

Below the chroot the layout is that of `kip30.paths`. A service's node has two children: ``leader``,
which goes with the leader's session, and ``epoch``, which stays; its version is the epoch. The data
version of a namespace's node counts the deletions of its keys.
"""

import struct

from kip30.envelope import seal, unseal
from kip30.errors import StoreError
from kip30.paths import Paths
from kip30.records import Entry, Version
from kip30_backends.zookeeper.jute import Stat
from kip30_backends.zookeeper.outbox import Ask, Steps
from kip30_backends.zookeeper.refusals import NodeExists, NoNode
from kip30_backends.zookeeper.wire import Acl, Create, Node

_EPOCH = struct.Struct("!i")


class Tree:
    """The part of the tree that belongs to one namespace of the configuration."""

    def __init__(self, chroot: str, namespace: str, acl: tuple[Acl, ...], *, modern: bool) -> None:
        """Lay it out below *chroot*, with *acl* on every node.

        *modern* says that the servers know the requests that came with ZooKeeper 3.6.
        """
        self.modern = modern
        self.paths = Paths(namespace)
        self.paths.root = chroot + self.paths.root
        self._acl = acl

    def leader(self, service: str) -> str:
        """Return where the leader's record is."""
        return f"{self.paths.service(service)}/leader"

    def epoch(self, service: str) -> str:
        """Return the node whose version is the epoch."""
        return f"{self.paths.service(service)}/epoch"

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> Create:
        """Return the request that creates the node *path*."""
        return Create(path, data, self._acl, ephemeral)

    def make(self, path: str) -> Steps[None]:
        """Create the empty node *path* and what is missing above it."""
        while True:
            answer = yield Ask((self.create(path, b""),), writes=True)
            try:
                answer.only()
            except NodeExists:
                return
            except NoNode:
                yield from self.make(parent(path))
            else:
                return


def parent(path: str) -> str:
    """Return the path above *path*."""
    return path.rpartition("/")[0]


def record(nonce: str, data: bytes) -> bytes:
    """Return what is kept in the node of a value or a member."""
    return seal(nonce, data)


def leader_record(nonce: str, data: bytes, candidate: str, epoch: int) -> bytes:
    """Return what is kept in a leader's node: it tells its own epoch, to be read with it."""
    return seal(nonce, _EPOCH.pack(epoch) + data, name=candidate)


def leader_of(node: Node, path: str) -> tuple[str, Entry]:
    """Return the candidate that leads, and its record.

    Raises:
        StoreError: Somebody else wrote it.
    """
    name, entry = entry_of(node, Version(0), path)
    if len(entry.data) < _EPOCH.size:
        raise StoreError(f"{path} is no leader of kip30's: remove it, or use another namespace")
    (epoch,) = _EPOCH.unpack_from(entry.data)
    return name, Entry(Version(epoch), entry.nonce, entry.data[_EPOCH.size :])


def version_of(stat: Stat) -> Version:
    """Return the version of a value: that of its node, and which life of the node it is."""
    return Version(stat.czxid, stat.version)


def entry_of(node: Node, version: Version, path: str) -> tuple[str, Entry]:
    """Return the name that is kept in a node, and its record.

    Raises:
        StoreError: Somebody else wrote it.
    """
    found = unseal(node.data or b"", path)
    return found.name, Entry(version, found.nonce, found.data)
