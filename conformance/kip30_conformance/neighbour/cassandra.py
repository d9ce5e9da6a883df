"""A neighbour in Cassandra, with cassandra-driver."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import HostFilterPolicy, RoundRobinPolicy
from cassandra.query import ConsistencyLevel
from typing_extensions import override

from kip30.driver.records import Kind, new_nonce
from kip30_conformance.neighbour.base import Neighbour, Spot
from kip30_conformance.polling import time_scale

_KEYSPACE = "kip30"
_SECONDS = 10
_GREATEST = 2**63 - 1


class _Row(NamedTuple):
    """The columns of a record; the *version* of a leader is its candidate."""

    version: int | str | None
    nonce: str | None
    data: bytes | None


class _Table(NamedTuple):
    """Table with the records of a kind, and its columns."""

    name: str
    scope: str
    ident: str
    version: str
    counter: str


_TABLES = {
    Kind.VALUE: _Table("records", "namespace", "name", "version", "rev"),
    Kind.MEMBER: _Table("members", "in_group", "id", "version", "rev"),
    Kind.SERVICE: _Table("leaders", "service", "seat", "candidate", "epoch"),
}


class CassandraNeighbour(Neighbour):
    """Writes rows, without the conditions that kip30's own writes have."""

    def __init__(self, addresses: str, root: str) -> None:
        """Connect only to the first of *addresses*, in kip30's form."""
        host, port = addresses.split(",", maxsplit=1)[0].split(":")

        def is_first(node: Any) -> bool:
            return str(node.endpoint.port) == port

        # The driver declares whole seconds for one of these, and takes any.
        seconds: Any = _SECONDS * time_scale()
        only: Any = HostFilterPolicy(RoundRobinPolicy(), is_first)
        profile = ExecutionProfile(
            load_balancing_policy=only,
            row_factory=_rows,
            consistency_level=ConsistencyLevel.QUORUM,
            request_timeout=seconds,
        )
        self._root = root
        self._cluster: Any = Cluster(
            [(host, int(port))],
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            max_schema_agreement_wait=0,
            connect_timeout=seconds,
            control_connection_timeout=seconds,
            # It writes to columns that it knows.
            schema_metadata_enabled=False,
            token_metadata_enabled=False,
        )
        self._session: Any = self._cluster.connect(_KEYSPACE)

    @override
    def read(self, spot: Spot) -> _Row | None:
        table = _TABLES[spot.kind]
        columns = f"{table.version} AS version, nonce, data"
        query = f"SELECT {columns} FROM {table.name} WHERE {_here(table)}"  # noqa: S608
        found = list(self._request(query, *self._place(spot)))
        return found[0] if found else None

    @override
    def write(self, spot: Spot, stored: _Row) -> None:
        table = _TABLES[spot.kind]
        columns = f"{table.version} = %s, nonce = %s, data = %s"
        update = f"UPDATE {table.name} SET {columns} WHERE {_here(table)}"  # noqa: S608
        self._request(update, *stored, *self._place(spot))

    @override
    def remove(self, spot: Spot) -> None:
        table = _TABLES[spot.kind]
        # Conditional: otherwise a renewal under way may write the row once more, and keep it.
        delete = f"DELETE FROM {table.name} WHERE {_here(table)} IF EXISTS"  # noqa: S608
        self._request(delete, *self._place(spot))

    @override
    def sound(self, spot: Spot, data: bytes) -> _Row:
        return _Row(1, new_nonce(), data)

    @override
    def foreign(self, data: bytes) -> _Row:
        return _Row(None, None, data)

    @override
    def unreadable_forms(self, sound: _Row) -> Mapping[str, _Row]:
        return {
            "no nonce": sound._replace(nonce=None),
            "no data": sound._replace(data=None),
            "huge data without a nonce": sound._replace(nonce=None, data=bytes(self.huge_bytes)),
        }

    @override
    def damaged_forms(self, sound: _Row) -> Mapping[str, _Row]:
        # Like a row that was deleted, except for its data.
        return {"data alone": _Row(None, None, sound.data)}

    @override
    def plant(self, kind: Kind, scope: str) -> None:
        table = _TABLES[kind]
        here = f"root = %s AND {table.scope} = %s"
        update = f"UPDATE {table.name} SET {table.counter} = %s WHERE {here}"  # noqa: S608
        self._request(update, _GREATEST, self._root, scope)

    @override
    def close(self) -> None:
        self._cluster.shutdown()

    def _request(self, query: str, *values: object) -> Any:
        return self._session.execute(query, values)

    def _place(self, spot: Spot) -> tuple[str, str, str | int]:
        return self._root, spot.scope, 0 if spot.kind is Kind.SERVICE else spot.name


def _here(table: _Table) -> str:
    return f"root = %s AND {table.scope} = %s AND {table.ident} = %s"


_APPLIED = "[applied]"
"""The first column of the answer to a conditional write."""


def _rows(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[_Row]:
    """Return the rows of the one query that finds any."""
    if _APPLIED in columns:  # the answer to a conditional write, in which no caller is interested
        return []
    return [_Row(**dict(zip(columns, row, strict=True))) for row in rows]
