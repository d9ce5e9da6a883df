"""Reading a store in bulk: the contract behind `Capability.SCANNING`.

`StorageDriver` answers questions about single keys, within a session. A copy, a comparison or an
audit reads everything once, over connections that claim nothing and write nothing. It takes a
*position*, plans *spans* from it, and reads each span in *pages*:

    with scanner(config, View()) as store:
        at = store.position()
        for span in store.plan(at, rows=20_000):
            for page in store.scan(span, at):
                ...

A job resumes at spans and shares them among its workers; it holds pages in memory.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.driver.records import Version
from kip30.errors import InvalidNameError, UnsupportedError, UsageError
from kip30.names import check_id, check_namespace, escape, unescape


class Layout(Enum):
    """Interpretation of the bytes of a store."""

    KIP30 = "kip30"
    """The values of kip30's own storage, by the keys of their users."""
    RAW = "raw"
    """Everything that is there, also of other programs, as it is."""
    CLAIMS = "claims"
    """Members, leaders and epochs, for people to look at (`claim_row`). None can be copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Scope of a scan.

    Attributes:
        layout: What the bytes are read as.
        under: For `Layout.KIP30` a namespace, read with all namespaces below it; otherwise the
            beginning of a path or key. Empty: everything.
        scratch: A directory of the caller's in which a store may keep a copy of itself until the
            caller deletes it. Only scans with the same directory find the copy again.
    """

    layout: Layout = Layout.KIP30
    under: str = ""
    scratch: Path | None = None

    def __post_init__(self) -> None:
        """Check the namespace.

        Raises:
            InvalidNameError: *under* cannot be a namespace, and the layout is `Layout.KIP30`.
        """
        if self.layout is Layout.KIP30:
            check_namespace(self.under)


class Consistency(Enum):
    """Consistency of the rows of one scan."""

    POINT_IN_TIME = "point-in-time"
    """All spans show the store as it was at the position."""
    PER_SPAN = "per-span"
    """Each span shows one moment, not before the position; two spans may show different ones."""
    FUZZY = "fuzzy"
    """Each row shows some moment, not before the position. A key that does not change is right."""


class Completeness(Enum):
    """Completeness of `ScanDriver.changes` for a key that changes several times."""

    EVERY_CHANGE = "every-change"
    """Each value that it had."""
    FINAL_STATES = "final-states"
    """The last one, which may be newer than the end of the span of time asked for."""


def _is_number(at: str) -> bool:
    return at.isascii() and at.isdecimal()


class Position(NamedTuple):
    """A moment of a view. Both parts are the store's own words and mean nothing to other stores.

    Attributes:
        store: Which store it is a moment of, and which part of it where parts have moments of
            their own; as certain as the store's own identity is.
        at: Which moment: a decimal number if later moments of the store have greater ones.
    """

    store: str
    at: str

    def precedes(self, other: "Position") -> bool:
        """Return whether this is known to be a moment before *other*, of the same store."""
        if self.store != other.store or not (_is_number(self.at) and _is_number(other.at)):
            return False
        return int(self.at) < int(other.at)


class Span(NamedTuple):
    """Part of a plan.

    Attributes:
        token: Which part, in the store's own words. It stays valid in other processes, and for as
            long as the store remembers the position.
        rows: About how many rows it has.
    """

    token: bytes
    rows: int


class Row(NamedTuple):
    """One record.

    Attributes:
        key: For `Layout.KIP30` the key as its user wrote it, in UTF-8; otherwise the path or key as
            it is in the store.
        data: The value without kip30's envelope; for other layouts as it is. None: a node of a tree
            that has no data.
        major: The greater part of the version.
        minor: The lesser part.
        created: The store's counter at the record's creation; None where the store keeps none.
        modified: The same for its last change.
        owner: The session or lease with which the record ends; None if it stays.
    """

    key: bytes
    data: bytes | None
    major: int
    minor: int
    created: int | None
    modified: int | None
    owner: str | None


def claim_row(
    kind: str, *names: str, data: bytes | None, version: Version, owner: str | None
) -> Row:
    """Return the row of a claim: its key has the escaped *names* as segments after *kind*.

    ``member/<group>/<id>`` has the incarnation as its version, ``leader/<service>/<candidate>`` and
    ``epoch/<service>`` have the epoch. An epoch stays when its leader is gone, and has no data.
    """
    key = "/".join((kind, *map(escape, names))).encode()
    return Row(key, data, version.major, version.minor, None, None, owner)


def hidden_leaders(service: str) -> bytes:
    """Return `Rejected.prefix` of the leader of *service*, whose record cannot be read."""
    return f"leader/{escape(service)}/".encode()


def leaders_hidden_at(path: str) -> bytes | None:
    """Return `Rejected.prefix` of a record at *path*, below a root; None: it is no leader's place.

    For stores with paths; see `kip30.driver.key_layout`.
    """
    match path.split("/"):
        case ["service", service, "leader"]:
            try:
                return hidden_leaders(check_id(unescape(service), "service"))
            except InvalidNameError:
                return None
        case _:
            return None


class Rejected(NamedTuple):
    """Something that is there and was not read as a record of the view.

    It may hide records: nothing is known of these, so that they must not count as deleted.

    Attributes:
        key: Its path or key in the store.
        reason: Why, in words.
        record: The key, as in `Row`, of the record whose place it has; None: it is no place of one.
        prefix: The prefix of the keys of all records that could be below it; None: none could. Of a
            leader that cannot be read it is that of the leaders of its service: `hidden_leaders`.
    """

    key: bytes
    reason: str
    record: bytes | None = None
    prefix: bytes | None = None

    @property
    def shown_key(self) -> str:
        """The key as text for a message, also if it is none."""
        return self.key.decode(errors="backslashreplace")


class Page(NamedTuple):
    """Result of one request: records in columns, and items that could not be read as records.

    Columns avoid an object for each record, and become Arrow columns as they are. They have
    the fields of `Row`, in its order, and all are of one length.
    """

    keys: Sequence[bytes]
    data: Sequence[bytes | None]
    majors: Sequence[int]
    minors: Sequence[int]
    created: Sequence[int | None]
    modified: Sequence[int | None]
    owners: Sequence[str | None]
    rejected: Sequence[Rejected] = ()

    @classmethod
    def of(cls, rows: Iterable[Row], rejected: Sequence[Rejected] = ()) -> Self:
        """Return a page of *rows*."""
        found = list(rows)
        # Not by ``zip(*found)``, which makes an object more for each row.
        columns: Any = ([row[number] for row in found] for number in range(len(Row._fields)))
        return cls._make((*columns, rejected))

    @property
    def rows(self) -> list[Row]:
        """The records, each with names for its fields."""
        return list(map(Row, *self[: len(Row._fields)]))


class Change(NamedTuple):
    """The outcome for one key.

    Attributes:
        key: As in `Row`; without *is_record*, the path or key in the store, as in `Rejected`.
        row: The record from then on; None: the key was deleted.
        order: Grows from change to change; equal for changes made in one transaction.
        rejected: What is there from then on and was not read as a record; *row* is None then, and
            the key was not deleted.
        is_record: Whether *key* is that of a record; false: its place can have none.
    """

    key: bytes
    row: Row | None
    order: int
    rejected: Rejected | None = None
    is_record: bool = True


class ScanDriver(Closeable):
    """A store opened for bulk reading alone. It claims, makes and writes nothing.

    Methods block; each request that they send ends by the operation timeout. One thread at a time
    uses an object, and no other process: it cannot be pickled and does not survive a fork.

    Every method raises `UnavailableError` if the store does not answer, `AuthenticationError` if it
    does not allow the reading, and `StoreError` if it is not what the view expects. An iterator
    that raised, or that its caller closed, no longer has a request in flight.

    Attributes:
        consistency: What the rows of a scan have in common.
        completeness: What `changes` shows; None if the store keeps no log of changes.
        is_tree: Whether a raw path names a node of a tree, which can have data and children.
        under_is_prefix: Whether raw paths begin with `View.under`.
        needs_scratch: Whether other scanners find a position only with the same `View.scratch`.
    """

    consistency: Consistency
    completeness: Completeness | None = None
    is_tree: ClassVar[bool] = False
    under_is_prefix: ClassVar[bool] = True
    needs_scratch: ClassVar[bool] = False

    @override
    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: connections do not travel.

        Raises:
            TypeError: Always.
        """
        raise TypeError("a scanner cannot be pickled: open another one there")

    @abstractmethod
    def position(self) -> Position:
        """Return a moment after every write that was acknowledged before this call."""

    def turn_to(self, view: View, at: Position) -> Position:
        """Read *view* from now on, over the same connections, and return a moment of it.

        It is *at*, the last position that was taken, where that is a moment of all views of the
        store; otherwise a new one. Spans and positions of the former view end.

        The default is for a store that needs a scanner for each view.

        Raises:
            UnsupportedError: The store cannot do this, or does not offer the view. The former view
                stays.
        """
        del at
        raise UnsupportedError(f"one scanner reads no second view: open another one for {view}")

    @abstractmethod
    def plan(self, at: Position, rows: int) -> Iterator[Span]:
        """Yield spans of about *rows* rows each. Together they cover the view, and none overlap.

        Raises:
            UsageError: *rows* is less than 1.
            PositionLostError: As for `scan`.
        """

    @abstractmethod
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        """Yield the records of *span*, as `consistency` says.

        Records deleted during a scan that is not of a point in time may be left out. Anything that
        cannot be read as a record is `Rejected`, and does not end the scan.

        Raises:
            PositionLostError: The store has forgotten *at*, or *at* is of another store.
        """

    def changed_since(self, page: Page, at: Position) -> Sequence[bool]:
        """Return for each record of *page* whether it may have been changed after *at*.

        The others are certain to be as they were at *at*. *page* was yielded by `scan` with *at*.
        A store that does not tell them apart keeps this default.
        """
        del at
        return [self.consistency is not Consistency.POINT_IN_TIME] * len(page.keys)

    @abstractmethod
    def changes(self, after: Position, until: Position) -> Iterator[Sequence[Change]]:
        """Yield the changes after *after*, up to and including *until*, in order.

        Raises:
            PositionLostError: The store has forgotten what followed *after*, or one of the two is
                of another store.
            UnsupportedError: The store keeps no log of changes.
        """


def check_rows(rows: int) -> int:
    """Return *rows*, the size of a span.

    Raises:
        UsageError: It is less than 1.
    """
    if rows < 1:
        raise UsageError(f"a span cannot have {rows} rows: give 1 or more")
    return rows


_PAGE_BYTES = 4 * 1024 * 1024
_FIRST_ROWS = 8
_MOST_ROWS = 5_000


class PageSize:
    """Number of rows to request next, so that a page has about 4 MiB.

    Attributes:
        rows: 8 first, because each may have a megabyte; then as many as the mean size seen
            suggests, at most twice as many as before.
    """

    def __init__(self, most: int = _MOST_ROWS) -> None:
        """Never request more than *most* rows at once."""
        self.rows: int = min(_FIRST_ROWS, most)
        self._most = most

    def adapt(self, page: Page) -> None:
        """Note the results of a page of this many rows."""
        if page.data:
            size = sum(map(len, filter(None, page.data)))
            fitting = _PAGE_BYTES * len(page.data) // max(size, 1)
            self.rows = max(1, min(fitting, 2 * self.rows, self._most))
