"""The requests of ZooKeeper's protocol that kip30 sends, and the reading of their answers.

kazoo lacks some of them (AddWatch, MultiRead, a Create2 inside of a Multi), so all are here, in the
form kazoo sends: an object with ``type``, ``serialize`` and ``deserialize``.
"""

import struct
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

from typing_extensions import override

from kip30_backends.zookeeper.client import jute
from kip30_backends.zookeeper.client.jute import Stat
from kip30_backends.zookeeper.errors import RequestRefused, refusal

ANY_VERSION = -1

# Numbers are those of `ZooDefs.OpCode`, `Watcher.Event.EventType`, `Watcher.WatcherType` and
# `CreateMode` in ZooKeeper's sources.
_ZXID = struct.Struct("!q")
_ZXID_AT = 4
_EVENT = struct.Struct("!ii")
_DELETED, _DATA_CHANGED = 2, 3
_MULTI_HEADER = struct.Struct("!i?i")
_MULTI_END = _MULTI_HEADER.pack(-1, True, -1)  # noqa: FBT003  a field of the protocol
# The types of answers in a Multi that differ from those of the requests.
_MULTI_FAILED = -1
_MULTI_CREATED = 1
_ANY_KIND_OF_WATCH = 3
_CONTAINER = jute.integer(4)


class Znode(NamedTuple):
    """A node as it was read; its data is None if it was created without."""

    data: bytes | None
    stat: Stat


class Acl(Protocol):
    """One entry of an access control list, as kazoo makes it."""

    perms: int
    id: Any


class AclEntry(NamedTuple):
    """One entry of an access control list as a server shows it."""

    permissions: int
    scheme: str
    ident: str

    @property
    def who(self) -> str:
        """Scheme and id, as `getAcl` of ZooKeeper's own shell shows them."""
        return f"{self.scheme}:{self.ident}"


class Request(Protocol):
    """A request that can be sent."""

    type: ClassVar[int]

    def serialize(self) -> bytes:
        """Return the body of the request."""
        ...

    def deserialize(self, reply: memoryview, offset: int, /) -> tuple[Any, int]:
        """Return the server's answer, and where in *reply* it ends."""
        ...


class _ToPath(NamedTuple):
    path: str


class Sync(_ToPath):
    """Let this connection's server catch up with the leader."""

    type: ClassVar[int] = 9

    def serialize(self) -> bytes:
        """Return the body of the request."""
        return jute.ustring(self.path)

    def deserialize(self, reply: memoryview, _offset: int) -> tuple[None, int]:
        """Return nothing."""
        return None, len(reply)


class _ReadRequest(NamedTuple):
    path: str
    watch: bool = False

    def serialize(self) -> bytes:
        """Return the body of the request."""
        return jute.ustring(self.path) + (b"\1" if self.watch else b"\0")


class GetData(_ReadRequest):
    """Read a node."""

    type: ClassVar[int] = 4

    def deserialize(self, reply: memoryview, offset: int) -> tuple[Znode, int]:
        """Return the node."""
        data, offset = jute.read_data(reply, offset)
        stat, offset = jute.read_stat(reply, offset)
        return Znode(data, stat), offset


class Exists(_ReadRequest):
    """Check whether a node exists."""

    type: ClassVar[int] = 3

    def deserialize(self, reply: memoryview, offset: int) -> tuple[Stat, int]:
        """Return what is known of the node."""
        return jute.read_stat(reply, offset)


class GetChildren(_ReadRequest):
    """Read the names of a node's children."""

    type: ClassVar[int] = 8

    def deserialize(self, reply: memoryview, offset: int) -> tuple[list[str], int]:
        """Return the names, in no order."""
        return jute.read_texts(reply, offset)


class GetAcl(_ToPath):
    """Read the access control list of a node."""

    type: ClassVar[int] = 6

    def serialize(self) -> bytes:
        """Return the body of the request."""
        return jute.ustring(self.path)

    def deserialize(self, reply: memoryview, offset: int) -> tuple[list[AclEntry], int]:
        """Return its entries."""
        count, offset = jute.read_integer(reply, offset)
        grants: list[AclEntry] = []
        for _ in range(count):
            permissions, offset = jute.read_integer(reply, offset)
            scheme, offset = jute.read_text(reply, offset)
            ident, offset = jute.read_text(reply, offset)
            grants.append(AclEntry(permissions, scheme, ident))
        _, offset = jute.read_stat(reply, offset)
        return grants, offset


class WhoAmI(tuple[()]):
    """Ask for the identities of this client at the server; servers know this request since 3.7."""

    __slots__ = ()
    type: ClassVar[int] = 107

    def serialize(self) -> bytes:
        """Return the body of the request."""
        return b""

    def deserialize(self, reply: memoryview, offset: int) -> tuple[list[str], int]:
        """Return scheme and name of each."""
        count, offset = jute.read_integer(reply, offset)
        names: list[str] = []
        for _ in range(count):
            scheme, offset = jute.read_text(reply, offset)
            name, offset = jute.read_text(reply, offset)
            names.append(f"{scheme}:{name}")
        return names, offset


class _Creating(NamedTuple):
    path: str
    data: bytes
    acl: tuple[Acl, ...]
    ephemeral: bool


class Create(_Creating):
    """Create a node."""

    type: ClassVar[int] = 15

    def serialize(self) -> bytes:
        """Return the body of the request."""
        acl = [_serialized(one) for one in self.acl]
        flags = jute.integer(1 if self.ephemeral else 0)
        return jute.ustring(self.path) + jute.buffer(self.data) + jute.vector(acl) + flags

    def deserialize(self, reply: memoryview, offset: int) -> tuple[Stat, int]:
        """Return what is known of the new node."""
        _, offset = jute.read_buffer(reply, offset)
        return jute.read_stat(reply, offset)


class CreateContainer(Create):
    """Create a node that the servers delete some time after its last child is gone."""

    type: ClassVar[int] = 19

    @override
    def serialize(self) -> bytes:
        """Return the body of the request."""
        return super().serialize()[: -len(_CONTAINER)] + _CONTAINER


class _Writing(NamedTuple):
    path: str
    data: bytes
    version: int = ANY_VERSION


class SetData(_Writing):
    """Replace a node's data, at one version or at any."""

    type: ClassVar[int] = 5

    def serialize(self) -> bytes:
        """Return the body of the request."""
        return jute.ustring(self.path) + jute.buffer(self.data) + jute.integer(self.version)

    def deserialize(self, reply: memoryview, offset: int) -> tuple[Stat, int]:
        """Return what is known of the node now."""
        return jute.read_stat(reply, offset)


class _AtVersion(NamedTuple):
    path: str
    version: int = ANY_VERSION


class Delete(_AtVersion):
    """Delete a node, at one version or at any."""

    type: ClassVar[int] = 2

    def serialize(self) -> bytes:
        """Return the body of the request."""
        return jute.ustring(self.path) + jute.integer(self.version)

    def deserialize(self, _reply: memoryview, offset: int) -> tuple[None, int]:
        """Return nothing."""
        return None, offset


class CheckVersion(Delete):
    """In a Multi: continue only if a node has a version."""

    type: ClassVar[int] = 13


class _Operations(NamedTuple):
    operations: tuple[Request, ...]

    def serialize(self) -> bytes:
        """Return the body of the request."""
        return _multi(self.operations)


class Multi(_Operations):
    """Do all of it or nothing."""

    type: ClassVar[int] = 14

    def deserialize(self, reply: memoryview, offset: int) -> tuple[list[Any], int]:
        """Return the answers of all operations.

        Raises:
            RequestRefused: Nothing was done, because of the operation whose number it carries.
        """
        results, offset = _read_multi(self.operations, reply, offset)
        for number, result in enumerate(results):
            if isinstance(result, RequestRefused) and result.is_reason:
                raise result.at(number)
        return results, offset


class MultiRead(_Operations):
    """Read several things at one moment."""

    type: ClassVar[int] = 22

    def deserialize(self, reply: memoryview, offset: int) -> tuple[list[Any], int]:
        """Return the answer to each operation, which may be a `RequestRefused`."""
        return _read_multi(self.operations, reply, offset)


class _WatchRequest(NamedTuple):
    path: str
    recursive: bool


class AddWatch(_WatchRequest):
    """Watch every change of a node, or of it and all below it, until `RemoveWatches`."""

    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        """Return the body of the request."""
        return jute.ustring(self.path) + jute.integer(1 if self.recursive else 0)

    def deserialize(self, reply: memoryview, _offset: int) -> tuple[None, int]:
        """Return nothing."""
        return None, len(reply)


class RemoveWatches(_ToPath):
    """Stop the notifications about a node."""

    type: ClassVar[int] = 18

    def serialize(self) -> bytes:
        """Return the body of the request."""
        return jute.ustring(self.path) + jute.integer(_ANY_KIND_OF_WATCH)

    def deserialize(self, reply: memoryview, _offset: int) -> tuple[None, int]:
        """Return nothing."""
        return None, len(reply)


class Close(tuple[()]):
    """End the session."""

    __slots__ = ()
    type: ClassVar[int] = -11

    def serialize(self) -> bytes:
        """Return the body of the request."""
        return b""

    def deserialize(self, _reply: memoryview, offset: int) -> tuple[None, int]:
        """Return nothing."""
        return None, offset


class Event(NamedTuple):
    """An event of the node *path*: it was deleted, only its data changed, or neither."""

    path: str
    is_deletion: bool
    is_data: bool


def read_event(notification: memoryview, offset: int) -> Event:
    """Return the event that *notification* has at *offset*."""
    kind, _ = _EVENT.unpack_from(notification, offset)
    path, _ = jute.read_buffer(notification, offset + _EVENT.size)
    return Event(path.decode(), kind == _DELETED, kind == _DATA_CHANGED)


def _serialized(acl: Acl) -> bytes:
    return jute.integer(acl.perms) + jute.ustring(acl.id.scheme) + jute.ustring(acl.id.id)


def _multi(operations: tuple[Request, ...]) -> bytes:
    parts: list[bytes] = []
    for one in operations:
        parts += (_MULTI_HEADER.pack(one.type, False, -1), one.serialize())  # noqa: FBT003  as above
    return b"".join((*parts, _MULTI_END))


def _read_multi(
    operations: tuple[Request, ...], reply: memoryview, offset: int
) -> tuple[list[Any], int]:
    results: list[Any] = []
    for one in operations:
        kind, _, _ = _MULTI_HEADER.unpack_from(reply, offset)
        read = _READERS.get(kind, one.deserialize)
        result, offset = _call(read, reply, offset + _MULTI_HEADER.size)
        results.append(result)
    return results, offset + _MULTI_HEADER.size


def _call(
    read: Callable[[memoryview, int], tuple[Any, int]], reply: memoryview, offset: int
) -> tuple[Any, int]:
    return read(reply, offset)


def _read_created(reply: memoryview, offset: int) -> tuple[Stat, int]:
    """Return the metadata of a new node from a server before 3.9, which returns its path alone.

    The node was created by the transaction that is answered, whose number every answer has.
    """
    _, offset = jute.read_buffer(reply, offset)
    (created,) = _ZXID.unpack_from(reply, _ZXID_AT)
    return Stat(created, created, 0, 0), offset


def _read_refusal(reply: memoryview, offset: int) -> tuple[RequestRefused, int]:
    code, offset = jute.read_integer(reply, offset)
    return refusal(code), offset


_READERS = {_MULTI_FAILED: _read_refusal, _MULTI_CREATED: _read_created}
