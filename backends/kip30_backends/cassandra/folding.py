"""Folding one partition: what is deleted in it, statement by statement."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from string import Template
from typing import Any, NamedTuple

from kip30.driver.records import new_nonce
from kip30_backends.cassandra.call import Answer, Ask
from kip30_backends.cassandra.calls import Calls, acknowledged
from kip30_backends.cassandra.errors import DeletionsError
from kip30_backends.cassandra.library import Row, Statement
from kip30_backends.cassandra.names_between import between
from kip30_backends.cassandra.statements import Statements

SIGNED_SECONDS = 600
"""How long a write leaves the signature of its client: for longer that one is not in doubt."""

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


class Place(NamedTuple):
    """A partition: the ``table``, and the namespace or group."""

    table: str
    scope: str


def statements(table: str, keyspace: str) -> dict[str, str]:
    """Return what is asked in order to fold a partition of *table*."""
    scope, row = _KEYS[table]
    words = {"table": f"{keyspace}.{table}", "scope": scope, "row": row}
    some = _CQL | (_SIGNATURES if table == "records" else {})
    parts = {name: Template(cql).substitute(words) for name, cql in _PARTS.items()}
    return {name: Template(cql).substitute(words, **parts) for name, cql in some.items()}


class Folding:
    """The folding of one partition. Each request waits for the one before."""

    def __init__(self, calls: Calls, statements: Statements, place: Place) -> None:
        """Fold *place*, whose table *statements* are about."""
        self._calls = calls
        self._statements = statements
        self._place = place
        self._rows = 0

    def fold(self) -> int:
        """Fold it, and return how many rows there are.

        Raises:
            Kip30Error: A request failed. What was folded by then is folded.
        """
        self._send(self._bind("head", new_nonce()))
        (found,) = self._read("read_written")
        written: int | None = found["written"]
        if written is None:
            return 0  # another program's row is in the place of the head
        before = written - 1  # two decisions may have the same microsecond
        if self._place.table == "records":
            expired = before - 2 * SIGNED_SECONDS * _MICROSECONDS
            self._send(self._bind("forget_signatures", expired))
        for after, names, end in self._parts():
            self._fold(before, [after, *names], end)
        return self._rows

    def _parts(self) -> Iterator[tuple[str, list[str], str | None]]:
        """Yield what is there, part by part: names after one name, up to and with an end.

        A part in which a read meets too many deletions is halved until it can be read.
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
        """Delete the gaps between *names*, and from the last one up to and with *end*."""
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
        return self._calls.send(Ask(statement, _rows, scans=True)).result()

    def _send(self, statement: Statement) -> None:
        self._calls.send(Ask(statement, acknowledged, writes=True)).result()

    @property
    def _where(self) -> tuple[str, str]:
        return self._calls.root, self._place.scope


def _rows(answer: Answer) -> Sequence[Row]:
    return answer.rows
