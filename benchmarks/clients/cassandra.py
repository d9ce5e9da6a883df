"""Cassandra by its driver alone: the statements that kip30 sends, and nothing besides."""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import cassandra.cluster
import cassandra.policies
import cassandra.query
from typing_extensions import override

from benchmarks.clients.interfaces import IN_FLIGHT, ScanReplay, ServerSide, noting
from benchmarks.clients.library import VALUE
from benchmarks.store_address import StoreAddress
from kip30_backends.cassandra.calls import Calls, TypedRequest
from kip30_backends.cassandra.client.connections import Statements

Row = Mapping[str, Any]

_cluster: Any = cassandra.cluster
_policies: Any = cassandra.policies
_query: Any = cassandra.query
_levels: Any = _query.ConsistencyLevel

_KEYSPACE = "kip30"
_PROTOCOL = 4
_DATA = VALUE.encode()
_NONCE = "0123456789abcdef"
_NAMESPACE = "bench"
_NAME = "one"
_SERVICE = "service"
_SECONDS = 600
_MANY = 1_000_000
_NO_FENCE = ("", None)


class Client:
    """The driver's session, and the statements that kip30 prepares, at the same levels.

    It leaves out what the driver could do besides, and kip30 does not use.
    """

    def __init__(self, address: StoreAddress) -> None:
        host, _, port = address.location.rpartition(":")
        profile = _cluster.ExecutionProfile(
            load_balancing_policy=_policies.DCAwareRoundRobinPolicy(),
            row_factory=_query.dict_factory,
        )
        self._cluster: Any = _cluster.Cluster(
            [host],
            port=int(port),
            protocol_version=_PROTOCOL,
            execution_profiles={_cluster.EXEC_PROFILE_DEFAULT: profile},
            schema_metadata_enabled=False,
            token_metadata_enabled=False,
            monitor_reporting_enabled=False,
        )
        self._session: Any = self._cluster.connect()
        self._session.use_client_timestamp = False
        preparing: Any = self
        self._statements = Statements.of_tables(preparing, _KEYSPACE)

    def prepare(self, cql: str, *, serial: bool = False) -> Any:
        prepared = self._session.prepare(cql)
        prepared.consistency_level = _levels.SERIAL if serial else _levels.QUORUM
        prepared.serial_consistency_level = _levels.SERIAL
        prepared.fetch_size = None
        return prepared

    def read(self, name: str, *values: Any) -> Sequence[Row]:
        return list(self._session.execute(self._statements.bind(name, *values)))

    def send(self, statement: Any) -> Sequence[Row]:
        return list(self._session.execute(statement))

    def begin_to_read(self, name: str, *values: Any) -> Any:
        """Return a future of the driver's."""
        return self._session.execute_async(self._statements.bind(name, *values))

    def write(self, *parts: tuple[Any, ...]) -> None:
        """Execute *parts*, names of statements and their values, as one."""
        statements = [self._statements.bind(*part) for part in parts]
        rows = list(self._session.execute(self._statements.batch(statements)))
        assert rows[0]["[applied]"], f"refused: {rows}"

    def query(self, cql: str) -> Sequence[Row]:
        return list(self._session.execute(cql))

    def close(self) -> None:
        self._cluster.shutdown()


class RawSide(ServerSide):
    """Operations on partitions of their own."""

    def __init__(self, address: StoreAddress) -> None:
        super().__init__()
        self._client = Client(address)
        self._root = f"raw-{uuid4()}"
        self._groups: set[str] = set()
        self._revs = dict[tuple[str, str], int]()
        self._client.write(("begin_records", self._root, _NAMESPACE))
        self._version = self._put(_NAME, "put_exact", None)
        where = (self._root, _SERVICE)
        self._client.write(
            ("advance_leaders", 1, *where, None, None),
            ("take_seat", _SECONDS, "candidate", _NONCE, _DATA, 1, *where),
        )

    @override
    def get(self) -> Sequence[Row]:
        return self._client.read("read_records", self._root, _NAMESPACE, [_NAME])

    @override
    def put(self, name: str) -> object:
        return self._put(name, "put_exact", None)

    @override
    def update(self) -> object:
        self._version = self._put(_NAME, "put_present")
        return self._version

    @override
    def compare_and_set(self) -> object:
        self._version = self._put(_NAME, "put_exact", self._version)
        return self._version

    @override
    def join(self, group: str, member: str) -> None:
        if group not in self._groups:
            self._groups.add(group)
            self._client.write(("begin_members", self._root, group))
        rev, where = _revision(), (self._root, group)
        self._revs[group, member] = rev
        self._client.write(
            ("advance_members", rev, *where, rev),
            ("insert_member", _SECONDS, rev, _NONCE, _DATA, rev, *where, member),
        )

    @override
    def leave(self, group: str, member: str) -> None:
        rev = self._revs.pop((group, member))
        self._client.write(("delete_member", self._root, group, member, _NONCE, rev))

    @override
    def get_leader(self) -> object:
        return self._client.read("read_leaders", self._root, _SERVICE)

    @override
    def in_flight(self) -> object:
        read = self._client.begin_to_read
        answers = [read("read_records", self._root, _NAMESPACE, [_NAME]) for _ in range(IN_FLIGHT)]
        return [list(answer.result()) for answer in answers]

    @override
    def members(self, group: str) -> object:
        return self._client.read("read_members", self._root, group)

    @override
    def names(self) -> list[str]:
        rows = self._client.read("list_names", self._root, _NAMESPACE, "", _MANY)
        return [one["name"] for one in rows if one["version"] is not None]

    @override
    def close(self) -> None:
        self._client.close()

    def _put(self, name: str, form: str, *version: int | None) -> int:
        rev, where = _revision(), (self._root, _NAMESPACE)
        new = (rev, rev, _NONCE, _DATA)
        self._client.write(
            (form, *new, *where, name, rev, *_NO_FENCE, *version),
            ("sign", _SECONDS, _NONCE, rev, *where),
        )
        return rev


def _revision() -> int:
    return time.time_ns() // 1000


class RawScan(ScanReplay):
    """It does not check that the tables are still those that they were."""

    def __init__(self, address: StoreAddress) -> None:
        self._client = Client(address)
        self._prepared: dict[str, Any] = {}
        self._requests: list[tuple[Any, Any]] = []

    @override
    @contextmanager
    def recording(self) -> Generator[None]:
        with noting(Calls, "send", self._note):
            yield

    @override
    def read(self) -> int:
        return sum(len(self._rows(*request)) for request in self._requests)

    @override
    def close(self) -> None:
        self._client.close()

    def _note(self, ask: TypedRequest[Any]) -> None:
        prepared = ask.statement.prepared_statement
        cql: str = prepared.query_string
        if "system" in cql or "DISTINCT" in cql:
            return
        if cql not in self._prepared:
            self._prepared[cql] = self._client.prepare(cql)
        self._requests.append((self._prepared[cql], _values(ask.statement)))

    def _rows(self, prepared: Any, values: Any) -> list[Any]:
        return [
            (one["namespace"], one["name"], one["data"], one["version"])
            for one in self._client.send(prepared.bind(values))
        ]


def _values(statement: Any) -> Any:
    """Return what *statement* was bound with: it keeps only what is sent."""
    columns = statement.prepared_statement.column_metadata
    return [
        column.type.from_binary(value, 4)
        for column, value in zip(columns, statement.values, strict=True)
    ]
