"""What the drivers of one backend share, put together, and taken apart in the right order."""

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from kip30.driver import Context
from kip30.driver.kit import fork_safety
from kip30.driver.kit.lifecycle import Ending, on_thread_of
from kip30.driver.kit.threads import start_eventually, started
from kip30_backends.cassandra import clocks, knowing
from kip30_backends.cassandra.call import Answer, Ask
from kip30_backends.cassandra.calls import Calls, acknowledged
from kip30_backends.cassandra.claims import Claims
from kip30_backends.cassandra.connection import Connection, once_known
from kip30_backends.cassandra.departed import Departed
from kip30_backends.cassandra.folds import Folds
from kip30_backends.cassandra.library import Row
from kip30_backends.cassandra.settings import CassandraSettings
from kip30_backends.cassandra.statements import Statements
from kip30_backends.cassandra.states import States
from kip30_backends.cassandra.watches import Watches

_log = logging.getLogger(__name__)


class Engine:
    """An open connection. Nothing in it refers to the backend, so that one can be dropped."""

    def __init__(self, context: Context, settings: CassandraSettings) -> None:
        """Connect.

        Raises:
            ConfigError: Settings contradict each other, or a file cannot be read. Nothing is sent.
            AuthenticationError: The cluster wants other credentials.
            StoreError: Its servers are too old, or the tables are missing and not to be made.
            UnavailableError: No node answered in the connect timeout.
        """
        self._interval = settings.renewal_within(context.session_timeout_seconds)
        self._settings = settings
        self._context = context
        self._connection = Connection(context, settings)
        self.wire = self._connection.wire
        self._repairing = threading.Lock()
        self._waiting: list[Callable[[], None]] = []
        self._ending = Ending(on_thread_of("kip30-cassandra", "event_loop"))
        fork_safety.register(self)
        begun = time.monotonic()
        try:
            self.calls = self._asking(self._connection.open(self._prepared))
            self._probe(context.connect_timeout_seconds - (time.monotonic() - begun))
        except BaseException:
            self._connection.close(0)
            raise
        self.claims = Claims(context, self.calls, self._interval)
        self.folds = Folds(self.calls, self.wire, settings.keyspace)
        self.states = States(self.calls, self.folds)
        departed = partial(Departed, context.clock, context.session_timeout_seconds)
        self.watches = Watches(self.states, self.calls, settings.pull_seconds, departed)

    def describe(self) -> dict[str, str]:
        """Ask a node who it is, and all of them what time it is.

        Raises:
            StoreError: Their clocks are too far apart.
        """
        statement = self.calls.statements.bind("describe")
        row = self.calls.send(Ask(statement, _only)).result()
        return {
            "version": f"Cassandra {row['release_version']}",
            "cluster": row["cluster_name"],
            "datacenter": row["data_center"],
            "nodes": ", ".join(str(node.endpoint) for node in self.wire.known()),
            "keyspace": self._settings.keyspace,
            "session timeout": f"{self.claims.sessions.row_seconds - 1} s",
            "clocks": self._clocks(),
        }

    def _clocks(self) -> str:
        statement = self.calls.statements.bind("look_at_clock")
        readings = clocks.read(self.wire, statement, self._context.operation_timeout_seconds / 2)
        return clocks.judge(readings, self._context.margin_seconds) if readings else "not told"

    def close(self) -> None:
        """End the lease, all watches, calls, threads and connections. Idempotent."""
        self._ending.once(self._close)

    def drop(self) -> None:
        """Close, because nobody can use this any more; on a thread that may be doing anything."""
        thread = threading.Thread(target=self.close, name="kip30-cassandra-drop", daemon=True)
        start_eventually(thread)

    def abandon(self) -> None:
        """In a forked child: leave everything to the parent."""
        self._ending.forgo()

    def _close(self) -> None:
        until = time.monotonic() + self._context.operation_timeout_seconds
        self.watches.stop()
        self.claims.close()
        self.calls.close()
        self._connection.close(max(0.0, until - time.monotonic()))

    def _prepared(self) -> Statements:
        """Make the tables unless they are there, and prepare what will be asked of them."""
        context, keyspace = self._context, self._settings.keyspace
        knowing.ensure(self.wire, self._settings, context.connect_timeout_seconds / 2)
        return once_known(
            lambda: Statements.of_tables(self.wire, keyspace),
            context.connect_timeout_seconds,
            self._spread_tables,
        )

    def _asking(self, statements: Statements) -> Calls:
        seconds, root = self._context.operation_timeout_seconds, self._context.namespace
        route = self._connection.route(self._repair)
        return Calls(route, statements, seconds=seconds, root=root)

    def _probe(self, seconds: float) -> None:
        """Read as everybody will, so that it is known to work; nodes may be late to hear of tables.

        What needs a quorum of the copies that there ought to be is not implied by the other.
        """
        until = time.monotonic() + seconds
        for prepared in (self.calls.statements.bind, self.calls.statements.poll):
            ask = Ask(prepared("read_rev", self.calls.root, ""), acknowledged)
            self.calls.send(ask, until).result()

    def _repair(self, then: Callable[[], None]) -> None:
        """Make tables anew that a cluster without memory has lost, then go on."""
        with self._repairing:
            self._waiting.append(then)
            is_first = len(self._waiting) == 1
        if is_first:
            self._begin_to_mend()

    def _begin_to_mend(self) -> None:
        mending = threading.Thread(target=self._mend, name="kip30-cassandra-mend", daemon=True)
        if not started(mending):
            self._resume()

    def _mend(self) -> None:
        self._spread_tables()
        self._resume()

    def _spread_tables(self) -> None:
        try:
            knowing.spread(self.wire, self._settings)
        except Exception as error:  # noqa: BLE001  what goes on will fail, and say why
            _log.info("the tables were not made: %s", error)

    def _resume(self) -> None:
        """Let all go on that waited for tables; they fail if there are none, and say so."""
        with self._repairing:
            waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()


def _only(answer: Answer) -> Row:
    return answer.rows[0]
