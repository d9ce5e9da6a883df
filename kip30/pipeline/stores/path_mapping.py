"""The mapping of records of other programs to keys of kip30's storage.

A path keeps its form and moves below a namespace: below ``/config``, ``/config/topics/t1`` becomes
``kafka/topics/t1``. So the children of a node become one key set, which listeners can observe.

Two paths never become the same key, so no job has to look for such pairs.
"""

from collections.abc import Iterable
from enum import Enum

from kip30.driver.scanning import Rejected, Row
from kip30.errors import InvalidNameError
from kip30.names import check_namespace, parse_key


class Lifetime(Enum):
    """The lifetime of a record."""

    PERSISTENT = "persistent"
    """Until it is deleted. ZooKeeper's containers and nodes with a time to live are among these:
    its servers show them to clients as they show any other node."""
    EPHEMERAL = "ephemeral"
    """As long as a session or a lease."""


class Skipped(Enum):
    """Reason why a record has no key although nothing is wrong with it."""

    EPHEMERAL = "ephemeral"
    """It ends with a session or lease. On the new store its owner joins or is elected again."""
    DIRECTORY = "directory"
    """A node of a tree that has children and no data; the keys of its children imply it."""


class Mapping:
    """The keys below a namespace that the records below a path become.

    A *tree* is a store whose paths begin with ``/`` and whose nodes have children: ZooKeeper. In
    other stores a key is any string, and keys below others do not make these directories.

    **Directories.** Only its children make a node without data a directory. Whether data is missing
    (None) or empty decides nothing: Kafka makes its directories (``/config/topics``) without data,
    and also leaves that say something by being there (``/admin/delete_topics/t1``) or by their
    version (``/brokers/seqid``); Kazoo gives the parents that it makes empty data. So a leaf is
    always a value, an empty one if need be: rather some useless keys than a lost one.
    """

    def __init__(self, into: str, under: str = "", *, is_tree: bool) -> None:
        """Map records below the path *under* to keys below the namespace *into*.

        Args:
            into: The namespace; empty for keys that begin where *under* ends.
            under: As in the `View` of the scan; a slash at its end makes no difference.
            is_tree: Whether the store is a tree.

        Raises:
            InvalidNameError: *into* cannot be a namespace.
        """
        top = under.removesuffix("/").encode()
        self._is_tree = is_tree
        self._top = top or b"/"
        self._above = top + b"/" if under or is_tree else b""
        self._into = f"{check_namespace(into)}/" if into else ""

    def key_of(self, row: Row, *, has_children: bool = False) -> str | Skipped | Rejected:
        """Return the key of a record of `Layout.RAW`, or why it has none.

        *has_children* says whether any record, even ephemeral or rejected, is right below this one
        (`parents`). The node at the top of a tree is a directory also without children.
        """
        if kind_of(row) is Lifetime.EPHEMERAL:
            return Skipped.EPHEMERAL
        if self._is_tree and not row.data and (has_children or row.key == self._top):
            return Skipped.DIRECTORY
        try:
            return self._key(row.key)
        except InvalidNameError as error:
            return Rejected(row.key, str(error))

    def hidden_by(self, one: Rejected) -> Rejected:
        """Return *one*, which a scan of `Layout.RAW` rejected, with the keys that it hides."""
        record = None if one.record is None else self.record_of(one.record)
        prefix = None if one.prefix is None else self.prefix_of(one.prefix)
        return one._replace(record=record, prefix=prefix)

    def record_of(self, path: bytes) -> bytes | None:
        """Return the key, in UTF-8, that a record at *path* has; None if it can have none."""
        try:
            return self._key(path).encode()
        except InvalidNameError:
            return None

    def prefix_of(self, prefix: bytes) -> bytes | None:
        """Return the prefix of the keys of all records whose paths begin with *prefix*.

        None if no such record has a key.
        """
        into = self._into.encode()
        if prefix.startswith(self._above):
            return into + prefix[len(self._above) :]
        return into if self._above.startswith(prefix) else None

    def _key(self, path: bytes) -> str:
        if not path.startswith(self._above):
            above = self._above.decode()
            raise InvalidNameError(f"it is not below {above!r}, so no name would be left")
        rest = _decoded(path[len(self._above) :])
        if f"/{rest}/".count("//"):
            raise InvalidNameError(f"{rest!r} has an empty part between, before or after slashes")
        return str(parse_key(f"{self._into}{rest}"))


def value_of(row: Row) -> bytes:
    """Return the value of the key that *row* becomes: a leaf without data is an empty value."""
    return row.data or b""


def kind_of(row: Row) -> Lifetime:
    """Return the lifetime of the record *row*."""
    return Lifetime.PERSISTENT if row.owner is None else Lifetime.EPHEMERAL


def parents(paths: Iterable[bytes]) -> set[bytes]:
    """Return the nodes of a tree which *paths*, those of rows and of rejected nodes, are below.

    The children of a node may be in other spans than the node. So a job makes these sets for each
    span, and looks nodes without data up in the union of all.
    """
    return {path.rpartition(b"/")[0] or b"/" for path in paths if path != b"/"}


def _decoded(path: bytes) -> str:
    try:
        return path.decode()
    except UnicodeDecodeError as error:
        raise InvalidNameError(
            f"it is not UTF-8: byte {path[error.start]:#04x} at {error.start}"
        ) from error
