"""The driver's session, and the statements that kip30 prepares, at the same levels."""

from collections.abc import Mapping, Sequence
from typing import Any

import cassandra.cluster
import cassandra.policies
import cassandra.query

from benchmarks.store_address import StoreAddress
from kip30_backends.cassandra.client.connections import Statements

Row = Mapping[str, Any]

_cluster: Any = cassandra.cluster
_policies: Any = cassandra.policies
_query: Any = cassandra.query
_levels: Any = _query.ConsistencyLevel

_KEYSPACE = "kip30"
_PROTOCOL = 4


class Client:
    """It leaves out what the driver could do besides, and kip30 does not use."""

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
