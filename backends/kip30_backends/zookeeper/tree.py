"""Where things are in ZooKeeper's tree, how they are made, and how records are kept in nodes.

Below the chroot the layout is that of `kip30.driver.key_layout`. A service's node has two
children: ``leader``, which goes with the leader's session, and ``epoch``, which stays; its version
is the epoch. The data version of a namespace's node counts the deletions of its keys.
"""

import struct
from typing import TypeVar

from kip30.driver.key_layout import Paths
from kip30.driver.record_format import seal, unseal
from kip30.driver.records import Entry, Version
from kip30.errors import StoreError
from kip30_backends.zookeeper.client.jute import Stat
from kip30_backends.zookeeper.client.protocol import Acl, Create, CreateContainer, Node
from kip30_backends.zookeeper.errors import NodeExists, NoNode
from kip30_backends.zookeeper.request import Ask, Steps
from kip30_backends.zookeeper.security import AccessLists

T = TypeVar("T")

_EPOCH = struct.Struct("!i")


class Tree:
    """The part of the tree that belongs to one namespace of the configuration."""

    def __init__(
        self,
        chroot: str,
        namespace: str,
        acl: tuple[Acl, ...],
        access: AccessLists,
        *,
        modern: bool,
    ) -> None:
        """Lay it out below *chroot*, with *acl* on every node that is made.

        *modern* says that the servers know the requests that came with ZooKeeper 3.6.
        """
        self.modern = modern
        self._access = access
        self._top = chroot
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

    def make_group(self, path: str) -> Steps[None]:
        """Create the group at *path*, to go when it is empty if the servers are modern.

        It may be missing still or again when a member is created in it: then ask again.
        """
        if not self.modern:
            return (yield from self.make(path))
        answer = yield Ask((CreateContainer(path, b"", self._acl, ephemeral=False),), writes=True)
        try:
            answer.only()
        except NodeExists:
            return
        except NoNode:
            yield from self.make(parent(path))

    def make(self, path: str) -> Steps[None]:
        """Create the empty node *path* and what is missing above it."""
        while True:
            answer = yield Ask((self.create(path, b""),), writes=True)
            try:
                answer.only()
            except NodeExists:
                break
            except NoNode:
                yield from self.make(parent(path))
            else:
                break
        yield from self.check(path)

    def checked(self, path: str, steps: Steps[T]) -> Steps[T]:
        """Return *steps*, which use the node *path*, behind its `check` if it is due."""
        return steps if self._access.covers(path) else self._after_check(path, steps)

    def _after_check(self, path: str, steps: Steps[T]) -> Steps[T]:
        yield from self.check(path)
        return (yield from steps)

    def check_directories(self) -> Steps[None]:
        """Check the root, and those below it in which all else is, as far as they exist.

        Raises:
            StoreError: Others may change one of them. The message names it.
        """
        paths = self.paths
        for inside in (paths.namespace(""), paths.group(""), paths.service("")):
            yield from self.check(parent(inside))

    def check(self, path: str) -> Steps[None]:
        """Check that others may change neither *path* nor a node above it, as far as they exist.

        Raises:
            StoreError: They may. The message names the node.
        """
        top = self._top or self.paths.root
        return self._access.check(top, path if path.startswith(self.paths.root) else top)


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
        StoreError: Another program wrote it.
    """
    name, entry = entry_of(node, Version(0), path)
    if len(entry.data) < _EPOCH.size:
        raise StoreError(f"{path} is no leader of kip30's: remove it, or use another namespace")
    (epoch,) = _EPOCH.unpack_from(entry.data)
    return name, Entry(Version(epoch), entry.nonce, entry.data[_EPOCH.size :])


def version_of(stat: Stat) -> Version:
    """Return the version of a value: that of its node, and which life of the node it is."""
    return Version(stat.czxid, stat.version)


def incarnation_of(stat: Stat) -> Version:
    """Return the version of a member: which life of its node it is."""
    return Version(stat.czxid)


def entry_of(node: Node, version: Version, path: str) -> tuple[str, Entry]:
    """Return the name that is kept in a node, and its record.

    Raises:
        StoreError: Another program wrote it.
    """
    found = unseal(node.data or b"", path)
    return found.name, Entry(version, found.nonce, found.data)
