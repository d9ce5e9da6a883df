"""The requests of a scanner, one at a time, over connections that make no tables."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kip30.driver import Context
from kip30.driver.kit import fork_safety
from kip30.driver.kit.lifecycle import Ending, on_thread_of
from kip30.errors import StoreError
from kip30_backends.cassandra.client.connection import Connection, once_known
from kip30_backends.cassandra.client.library import Row, Statement, Wire
from kip30_backends.cassandra.client.statements import Statements
from kip30_backends.cassandra.request import Answer, Ask, Calls
from kip30_backends.cassandra.settings import CassandraSettings

_PARTITIONER = "Murmur3Partitioner"
_COLUMNS = (
    "SELECT table_name, column_name, kind, type, WRITETIME(type) AS made"
    " FROM system_schema.columns WHERE keyspace_name = "
)
_CQL = {
    "describe": "SELECT cluster_name, partitioner FROM system.local",
    "columns": f"{_COLUMNS}?",
}


class ScanCalls:
    """Asks, and waits for the answer. Every read sees all that was acknowledged.

    Attributes:
        cluster: The name of the cluster.
        keyspace: Where the tables are, as the servers write it.
    """

    def __init__(self, context: Context, settings: CassandraSettings) -> None:
        """Connect.

        Raises:
            ConfigError: A file of the settings cannot be read. Nothing is sent.
            AuthenticationError: The cluster wants other credentials.
            StoreError: Its servers are too old, or their partitioner is not the usual one.
            UnavailableError: No node answered in the connect timeout.
        """
        self.keyspace = settings.keyspace.lower()
        self._seconds = context.operation_timeout_seconds
        self._connection = Connection(context, settings)
        self._ending = Ending(on_thread_of("kip30-cassandra", "event_loop"))
        fork_safety.register(self)
        try:
            statements = self._connection.open(lambda: Statements(self._connection.wire, _CQL))
            route = self._connection.route(_go_on)
            seconds, root = context.operation_timeout_seconds, context.namespace
            self._calls = Calls(route, statements, seconds=seconds, root=root)
            self.cluster = self._described()
        except BaseException:
            self._connection.close(0)
            raise

    @property
    def root(self) -> str:
        """The namespace of the configuration."""
        return self._calls.root

    def prepare(self, cql: Mapping[str, str]) -> Statements:
        """Return *cql* ready to be bound, about tables that are there.

        Raises:
            StoreError: They are not, by what a node said for as long as a request may take.
            UnavailableError: No node answered in that time.
        """
        build = partial(Statements, self._connection.wire, cql)
        waiting = partial(once_known, build, self._seconds, self._calls.check)
        return self._connection.within(self._seconds, waiting)

    def ask(self, statement: Statement) -> Sequence[Row]:
        """Return the rows that *statement* finds."""
        asked = self._calls.send(Ask(statement, _rows))
        try:
            return asked.result()
        finally:
            asked.cancel()

    def columns(self, tables: Sequence[str]) -> Sequence[Row]:
        """Return all columns of those of *tables* that are there.

        One node may not have heard of them; so all that are up must say so if none is there.
        """
        found = self.ask(self._calls.statements.bind("columns", self.keyspace))
        if not (known := _of(tables, found)):
            looking = partial(_columns_anywhere, self._connection.wire, self.keyspace, tables)
            known = self._connection.within(self._seconds, looking)
        return known

    def close(self) -> None:
        """End all requests, threads and connections. Idempotent."""
        self._ending.once(self._close)

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._ending.forgo()

    def _close(self) -> None:
        until = time.monotonic() + self._seconds
        self._calls.close()
        self._connection.close(max(0.0, until - time.monotonic()))

    def _described(self) -> str:
        (found,) = self.ask(self._calls.statements.bind("describe"))
        partitioner: str = found["partitioner"].rpartition(".")[2]
        if partitioner != _PARTITIONER:
            raise StoreError(
                f"the cluster has {partitioner}: bulk reading goes by the tokens of {_PARTITIONER}"
            )
        return str(found["cluster_name"])


def _go_on(then: Callable[[], None]) -> None:
    """Make no tables, and have another node asked."""
    then()


def _rows(answer: Answer) -> Sequence[Row]:
    return answer.rows


def _of(tables: Sequence[str], found: Sequence[Row]) -> list[Row]:
    return [row for row in found if row["table_name"] in tables]


def _columns_anywhere(wire: Wire, keyspace: str, tables: Sequence[str]) -> list[Row]:
    for node in wire.reached():
        if found := _of(tables, wire.execute(f"{_COLUMNS}'{keyspace}'", node)):
            return found
    return []
