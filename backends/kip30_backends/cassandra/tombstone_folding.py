"""Folding deletions: one deleted range replaces many deleted rows, which slow down each read.

Cassandra keeps a tombstone for each deleted row, for ten days by default, and fails a read that
finds too many of them. A deleted range replaces all older tombstones in it. So between two existing
rows, everything from before a given moment can be deleted as a range.

That moment is the timestamp of a conditional write of the same partition. All later writes have a
greater one, because timestamps of decisions grow in a partition. The serial reads that follow see
all earlier writes. So folding loses no row, existing or future, and these deletions need no
condition.

Ranges are kept as long as other deletions: a node may be away for as long as before.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import pairwise
from string import Template
from typing import Any, NamedTuple, TypeVar

from kip30.driver.kit.futures import fail, succeed
from kip30.driver.kit.operation import Steps
from kip30.driver.kit.thread_start import started
from kip30.driver.records import new_nonce
from kip30_backends.cassandra.calls import Calls, TypedRequest, acknowledged, rows_of
from kip30_backends.cassandra.client.connections import (
    ClusterConnections,
    Row,
    Statement,
    Statements,
)
from kip30_backends.cassandra.errors import DeletionsError

_LAST = 0x10FFFF
_BASE = _LAST + 1
_SURROGATES = range(0xD800, 0xE000)
"""Code points that no text has; the code point below them stands for all of them."""


def between(after: str, until: str | None) -> str:
    """Return a text above *after* and below *until* (None: the end), about halfway.

    Such a text must exist. UTF-8 keeps the order of code points, so a text counts as a fraction
    whose digits are its code points.
    """
    length = max(len(after), len(until or "")) + 1
    low = _number(after, length)
    high = _BASE**length if until is None else _number(until, length)
    return _text((low + high) // 2, length) if high - low > _BASE else after + chr(1)


def _number(text: str, length: int) -> int:
    number = 0
    for point in map(ord, text.ljust(length, "\0")):
        number = number * _BASE + point
    return number


def _text(number: int, length: int) -> str:
    points = list[int]()
    for _ in range(length):
        number, point = divmod(number, _BASE)
        points.append(_SURROGATES.start - 1 if point in _SURROGATES else point)
    return "".join(map(chr, reversed(points))).rstrip("\0")


SIGNED_SECONDS = 600
"""Seconds that a write leaves its client's signature: a client is in doubt no longer than that."""

_PAGE = 1_000
_AT_ONCE = 100
_MOST_ROWS = 20_000
"""Of partitions that hold more, the gaps are left: two ends of each cost as much as two deletions.
But where a read fails they are folded, however many there are."""
_KEYS = {"records": ("namespace", "name"), "members": ("in_group", "id")}
_PARTS = {
    "here": "WHERE root = ? AND $scope = ?",
    "delete": "DELETE FROM $table USING TIMESTAMP ? WHERE root = ? AND $scope = ?",
}
_CQL = {
    "head": "UPDATE $table SET nonce = ? $here AND $row = '' IF version = null",
    "read_written": "SELECT WRITETIME(nonce) AS written FROM $table $here AND $row = ''",
    "read_rows": "SELECT $row AS name FROM $table $here AND $row > ? LIMIT ?",
    "read_rows_until": "SELECT $row AS name FROM $table $here AND $row > ? AND $row <= ? LIMIT ?",
    "fold": "$delete AND $row > ? AND $row < ?",
    "fold_until": "$delete AND $row > ? AND $row <= ?",
    "fold_rest": "$delete AND $row > ?",
}
_SIGNATURES = {"forget_signatures": "DELETE done FROM $table USING TIMESTAMP ? $here"}
_MICROSECONDS = 1_000_000


class Partition(NamedTuple):
    """A partition: the ``table``, and the namespace or group."""

    table: str
    scope: str


def statements(table: str, keyspace: str) -> dict[str, str]:
    """Return the statements that fold a partition of *table*."""
    scope, row = _KEYS[table]
    words = {"table": f"{keyspace}.{table}", "scope": scope, "row": row}
    some = _CQL | (_SIGNATURES if table == "records" else {})
    parts = {name: Template(cql).substitute(words) for name, cql in _PARTS.items()}
    return {name: Template(cql).substitute(words, **parts) for name, cql in some.items()}


class PartitionFolding:
    """The folding of one partition. Each request waits for the one before."""

    def __init__(self, calls: Calls, statements: Statements, place: Partition) -> None:
        """Fold *place* with *statements*, which are about its table."""
        self._calls = calls
        self._statements = statements
        self._place = place
        self._rows = 0

    def fold(self) -> int:
        """Fold the partition, and return how many rows it has.

        Raises:
            Kip30Error: A request failed. Earlier parts stay folded.
        """
        self._send(self._bind("head", new_nonce()))
        (found,) = self._read("read_written")
        written: int | None = found["written"]
        if written is None:
            return 0  # another program's row has replaced the head
        before = written - 1  # two decisions may have the same microsecond
        if self._place.table == "records":
            expired = before - 2 * SIGNED_SECONDS * _MICROSECONDS
            self._send(self._bind("forget_signatures", expired))
        for after, names, end in self._parts():
            self._fold(before, [after, *names], end)
        return self._rows

    def _parts(self) -> Iterator[tuple[str, list[str], str | None]]:
        """Yield the names part by part: those after one name, up to and including an end.

        A part whose read finds too many deletions is halved until it can be read.
        """
        after, ends = "", list[str | None]([None])
        while ends:
            end = ends[-1]
            try:
                names = self._names(after, end)
            except DeletionsError:
                ends.append(between(after, end))
                continue
            self._rows += len(names)
            if len(names) == _PAGE:
                end = names[-1]
            else:
                ends.pop()
            yield after, names, end
            after = end or after

    def _names(self, after: str, end: str | None) -> list[str]:
        if end is None:
            found = self._read("read_rows", after, _PAGE)
        else:
            found = self._read("read_rows_until", after, end, _PAGE)
        return [row["name"] for row in found]

    def _fold(self, before: int, names: Sequence[str], end: str | None) -> None:
        """Delete the gaps between *names*, and from the last one up to and including *end*."""
        gaps = list[Statement]()
        if self._rows <= _MOST_ROWS:
            gaps = [self._gap("fold", before, *gap) for gap in pairwise(names)]
        if end is None:
            gaps.append(self._gap("fold_rest", before, names[-1]))
        elif end != names[-1]:
            gaps.append(self._gap("fold_until", before, names[-1], end))
        for at in range(0, len(gaps), _AT_ONCE):
            self._send(self._statements.batch(gaps[at : at + _AT_ONCE]))

    def _gap(self, name: str, before: int, *ends: str) -> Statement:
        return self._statements.bind(name, before, *self._where, *ends)

    def _bind(self, name: str, value: object) -> Statement:
        return self._statements.bind(name, value, *self._where)

    def _read(self, name: str, *values: Any) -> Sequence[Row]:
        statement = self._statements.bind(name, *self._where, *values)
        return self._calls.send(TypedRequest(statement, rows_of, scans=True)).result()

    def _send(self, statement: Statement) -> None:
        self._calls.send(TypedRequest(statement, acknowledged, writes=True)).result()

    @property
    def _where(self) -> tuple[str, str]:
        return self._calls.root, self._place.scope


T = TypeVar("T")

EVERY = 500
"""After how many deletions a place is folded, on the average. Each client throws dice of its own,
so it does not matter among how many clients they are divided."""

_log = logging.getLogger(__name__)


class FoldingQueue:
    """Folds partitions, one after the other, on a thread that runs while there are any."""

    def __init__(self, calls: Calls, connections: ClusterConnections, keyspace: str) -> None:
        """Fold in *keyspace*; statements are prepared on first use."""
        self._calls = calls
        self._connections = connections
        self._keyspace = keyspace
        # The statements of each table, prepared with its first fold. Written by the folding thread.
        self._prepared: dict[str, Statements] = {}
        # How many rows a partition had when it was last folded.
        self._sizes: dict[Partition, int] = {}
        # Partitions to be folded, and the futures of their callers. Written under the lock.
        self._waiting: dict[Partition, Future[None]] = {}
        self._lock = threading.Lock()

    def noted(self, table: str, scope: str, deletions: int) -> None:
        """Record a number of *deletions* in a partition, and fold it at random."""
        place = Partition(table, scope)
        every = max(EVERY, self._sizes.get(place, 0) // 2)
        if deletions and random.random() * every < deletions:  # noqa: S311  dice
            self._begun(place)

    def retried_after_folding(
        self, place: Partition, read: Callable[[], Future[T]], until: float
    ) -> Steps[T]:
        """Return the result of *read*; if deletions make it fail, fold *place* and retry."""
        found: T
        try:
            found = yield read()
        except DeletionsError as error:
            yield self._folded(place, error, until)
            found = yield read()
        return found

    def _folded(self, place: Partition, error: DeletionsError, until: float) -> Future[None]:
        """Return what is done once *place* was folded; it fails with *error* at the deadline."""
        waiting: Future[None] = Future()
        late = self._calls.timer.after(until - time.monotonic(), partial(fail, waiting, error))
        if late is not None:
            waiting.add_done_callback(lambda _: late.cancel())
        self._begun(place).add_done_callback(lambda _: succeed(waiting, None))
        return waiting

    def _begun(self, place: Partition) -> Future[None]:
        """Return what is done once *place* was folded, or folding has failed."""
        with self._lock:
            done = self._waiting.get(place)
            if done is not None:
                return done
            done = self._waiting[place] = Future()
            is_first = len(self._waiting) == 1
        if is_first:
            thread = threading.Thread(target=self._work, name="kip30-cassandra-fold", daemon=True)
            if not started(thread):
                self._leave()
        return done

    def _work(self) -> None:
        while (place := next(iter(self._waiting), None)) is not None:
            self._fold(place)
            with self._lock:
                done = self._waiting.pop(place)
                is_last = not self._waiting
            succeed(done, None)
            if is_last:  # the next request starts a thread
                return

    def _leave(self) -> None:
        """Complete all waiting futures, as without a request: no thread can serve them."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            succeed(done, None)

    def _fold(self, place: Partition) -> None:
        try:
            rows = PartitionFolding(self._calls, self._about(place.table), place).fold()
        except Exception as error:  # noqa: BLE001  the driver raises what it likes
            _log.info("deletions in %s %r were not folded: %s", *place, error)
        else:
            self._sizes[place] = rows

    def _about(self, table: str) -> Statements:
        if table not in self._prepared:
            self._prepared[table] = Statements(self._connections, statements(table, self._keyspace))
        return self._prepared[table]
