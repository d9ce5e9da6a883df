"""Decoding rows: which nodes a view covers, and what row each becomes.

Paths have no slash at the end here, so the root of all is ``""``.
"""

import re
from abc import ABC, abstractmethod
from functools import lru_cache

from typing_extensions import override

from kip30.driver.key_layout import Paths
from kip30.driver.record_format import unseal
from kip30.driver.records import Version
from kip30.driver.scanning import Layout, Rejected, Row, View, claim_row, leaders_hidden_at
from kip30.errors import InvalidNameError, StoreError
from kip30.names import MAX_NAME_BYTES, Key, parse_key, unescape
from kip30_backends.zookeeper.client.jute import Stat
from kip30_backends.zookeeper.client.messages import Znode
from kip30_backends.zookeeper.tree import entry_of, leader_of, version_of

# The values that `EphemeralType` in ZooKeeper's sources gives the owner of nodes without one.
_CONTAINER = -(2**63)
_TTL, _ABOVE_TTL = 0xFF0000, 40
"""Upper 24 bits of the owner of a node with a time to live, and the number of bits below them."""
_SESSION_BITS = 2**64 - 1
_RECORDS = 2
"""Number of levels from the top of a view down to values, members, leaders and epochs."""
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
"""Names that escape to themselves, as nearly all do."""
_RESERVED = "/zookeeper"


class ScanView(ABC):
    """The nodes of a view.

    Attributes:
        tops: Its topmost nodes; it has all nodes below them.
    """

    tops: tuple[str, ...]

    def __init__(self, chroot: str) -> None:
        """Show paths as a client with *chroot* sees them."""
        self._chroot = chroot

    def covers(self, path: str) -> bool:
        """Return whether the node at *path*, below a top, is part of the view."""
        del path
        return True

    @abstractmethod
    def read(self, path: str, node: Znode) -> Row | Rejected | None:
        """Return the row of *node*; None: no record, but there may be records below it."""

    def reject(self, path: str, reason: str) -> Rejected:
        """Return that the node at *path* was not read, nor what is below it."""
        return Rejected(self.shown(path), reason, *self.hidden(path))

    @abstractmethod
    def hidden(self, path: str) -> tuple[bytes | None, bytes | None]:
        """Return `Rejected.record` and `Rejected.prefix` of a node that was not read."""

    def shown(self, path: str) -> bytes:
        """Return *path* below the chroot."""
        return (path[len(self._chroot) :] or "/").encode()


class _Scoped(ScanView):
    """Records two levels below the tops."""

    def __init__(self, chroot: str, paths: Paths) -> None:
        super().__init__(chroot)
        self._above_tops = len(paths.root) + 1

    @override
    def read(self, path: str, node: Znode) -> Row | Rejected | None:
        _, *names = path[self._above_tops :].split("/")
        try:
            return self._read(path, names, node)
        except (InvalidNameError, StoreError, UnicodeError) as error:
            return self.reject(path, str(error))

    def _read(self, path: str, names: list[str], node: Znode) -> Row | Rejected | None:
        if len(names) == _RECORDS:
            return self.record(path, names[0], names[1], node)
        if len(names) > _RECORDS:
            return self.reject(path, "kip30 keeps nothing below a record")
        if names:
            self.check_scope(names[0])
        return None

    @abstractmethod
    def check_scope(self, segment: str) -> None:
        """Raise `InvalidNameError` if kip30 would not make a scope of this name."""

    @abstractmethod
    def record(self, path: str, scope: str, name: str, node: Znode) -> Row | Rejected | None:
        """Return what the node *name* of *scope* is; raises as `read` rejects."""


class ValueView(_Scoped):
    """kip30's values."""

    def __init__(self, chroot: str, paths: Paths, under: str) -> None:
        """Cover the namespace *under* and those below it."""
        super().__init__(chroot, paths)
        self.tops = (f"{paths.root}/kv",)
        self._under = under

    @override
    def covers(self, path: str) -> bool:
        if not self._under:
            return True
        scope = path[len(self.tops[0]) + 1 :].partition("/")[0]
        try:
            return f"{_namespace(scope)}/".startswith(f"{self._under}/")
        except InvalidNameError:
            return False

    @override
    def hidden(self, path: str) -> tuple[bytes | None, bytes | None]:
        scope, *names = path[len(self.tops[0]) + 1 :].split("/")
        try:
            namespace = _namespace(scope)
            if not names:
                return None, f"{namespace}/".encode() if namespace else b""
            is_place = len(names) == 1
            return (str(Key(namespace, _name(names[0]))).encode() if is_place else None), None
        except InvalidNameError:
            return None, None

    @override
    def check_scope(self, segment: str) -> None:
        _namespace(segment)

    @override
    def record(self, path: str, scope: str, name: str, node: Znode) -> Row | Rejected | None:
        key = Key(_namespace(scope), _name(name))
        data = unseal(node.data or b"", path).data
        return _row(str(key).encode(), data, node.stat)


class ClaimView(_Scoped):
    """kip30's members, leaders and epochs."""

    def __init__(self, chroot: str, paths: Paths, under: str) -> None:
        """Cover claims whose keys begin with *under*."""
        super().__init__(chroot, paths)
        self._groups = f"{paths.root}/group"
        self.tops = (self._groups, f"{paths.root}/service")
        self._under = under.encode()

    @override
    def hidden(self, path: str) -> tuple[bytes | None, bytes | None]:
        # Claims are looked at, and never followed.
        place = path[self._above_tops :]
        # A node that may not be listed hides the leader below it.
        return None, leaders_hidden_at(place) or leaders_hidden_at(f"{place}/leader")

    @override
    def check_scope(self, segment: str) -> None:
        _name_of_claim(segment)

    @override
    def record(self, path: str, scope: str, name: str, node: Znode) -> Row | Rejected | None:
        row = self._claim(path, _name_of_claim(scope), name, node)
        is_outside = isinstance(row, Row) and not row.key.startswith(self._under)
        return None if is_outside else row

    def _claim(self, path: str, scope: str, name: str, node: Znode) -> Row | Rejected | None:
        if path.startswith(f"{self._groups}/"):
            return _member(path, scope, _name_of_claim(name), node)
        if name == "leader":
            return _leader(path, scope, node)
        if name == "epoch":
            return _epoch(scope, node)
        return self.reject(path, "a service has a leader and an epoch, and nothing else")


class RawView(ScanView):
    """All nodes, those of other programs included."""

    def __init__(self, chroot: str, under: str) -> None:
        """Cover the node *under* and what is below it.

        Raises:
            InvalidNameError: *under* is no path.
        """
        super().__init__(chroot)
        self.tops = (chroot + _checked_path(under),)

    @override
    def covers(self, path: str) -> bool:
        return path != _RESERVED

    @override
    def hidden(self, path: str) -> tuple[bytes | None, bytes | None]:
        shown = self.shown(path)
        return shown, shown.rstrip(b"/") + b"/"

    @override
    def read(self, path: str, node: Znode) -> Row | Rejected | None:
        return _row(self.shown(path), node.data, node.stat)


def nodes_of(view: View, chroot: str, namespace: str) -> ScanView:
    """Return the nodes of *view*.

    Raises:
        InvalidNameError: The view is below something that cannot be a name or a path.
    """
    paths = Paths(namespace)
    paths.root = chroot + paths.root
    if view.layout is Layout.RAW:
        return RawView(chroot, view.under)
    kind = ValueView if view.layout is Layout.KIP30 else ClaimView
    return kind(chroot, paths, view.under)


def owner_of(stat: Stat) -> str | None:
    """Return the session that a node ends with, if it is an ephemeral one."""
    number = stat.owner & _SESSION_BITS
    if stat.owner in {0, _CONTAINER} or number >> _ABOVE_TTL == _TTL:
        return None
    return f"{number:#x}"


def _row(key: bytes, data: bytes | None, stat: Stat) -> Row:
    version = version_of(stat)
    owner = owner_of(stat) if stat.owner else None
    return Row(key, data, version.major, version.minor, stat.czxid, stat.mzxid, owner)


def _member(path: str, group: str, member: str, node: Znode) -> Row:
    _, entry = entry_of(node, Version(node.stat.czxid), path)
    owner = owner_of(node.stat)
    return claim_row("member", group, member, data=entry.data, version=entry.version, owner=owner)


def _leader(path: str, service: str, node: Znode) -> Row:
    candidate, entry = leader_of(node, path)
    owner, version = owner_of(node.stat), entry.version
    return claim_row("leader", service, candidate, data=entry.data, version=version, owner=owner)


def _epoch(service: str, node: Znode) -> Row | None:
    """Return the newest epoch of a service; it has none before its first leader."""
    version = Version(node.stat.version)
    return (
        claim_row("epoch", service, data=None, version=version, owner=None) if version[0] else None
    )


@lru_cache(maxsize=64)
def _namespace(segment: str) -> str:
    """Return the namespace whose values are below the node *segment*."""
    namespace = unescape(segment)
    parse_key(f"{namespace}/any" if namespace else "any")
    return namespace


def _name(segment: str) -> str:
    """Return the last part of a key."""
    name = segment if _PLAIN.fullmatch(segment) else unescape(segment)
    if not name or "/" in name or len(segment) > MAX_NAME_BYTES:
        raise InvalidNameError(f"{segment!r} cannot be the last part of a key")
    return name


def _name_of_claim(segment: str) -> str:
    if name := unescape(segment):
        return name
    raise InvalidNameError(f"{segment!r} is the escaped form of no name")


def _checked_path(under: str) -> str:
    path = under.rstrip("/")
    parts = path.split("/")[1:]
    if (path and not path.startswith("/")) or not {"", ".", ".."}.isdisjoint(parts):
        raise InvalidNameError(f"{under!r} is no path of a node: begin with '/'")
    return path
