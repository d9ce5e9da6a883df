"""Statements of an administrator to a server."""

from collections.abc import Sequence
from typing import Any, Self

from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import HostFilterPolicy, RoundRobinPolicy
from cassandra.query import ConsistencyLevel, dict_factory


class Admin:
    """Speaks CQL to the server at *address*, and to no other one."""

    def __init__(self, address: str, **login: str) -> None:
        host, port = address.split(":")
        only = HostFilterPolicy(RoundRobinPolicy(), lambda node: str(node.endpoint.port) == port)
        profile = ExecutionProfile(
            load_balancing_policy=only,
            row_factory=dict_factory,
            consistency_level=ConsistencyLevel.QUORUM,
        )
        self._cluster: Any = Cluster(
            [(host, int(port))],
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            auth_provider=PlainTextAuthProvider(**login) if login else None,
            max_schema_agreement_wait=0,
        )
        self._session: Any = self._cluster.connect()

    def tell(self, cql: str, *values: object) -> Sequence[dict[str, Any]]:
        """Execute *cql* with *values* for its ``%s``, and return the rows."""
        return list(self._session.execute(cql, values or None) or ())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session."""
        self._cluster.shutdown()
