"""What the drivers of one backend share, put together, and taken apart in the right order.

A row ends by the clock of the node that is asked for it, so `describe` compares the nodes' clocks.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial
from typing import NamedTuple

from kip30.driver import Context
from kip30.driver.kit import fork_safety
from kip30.driver.kit.futures import fail
from kip30.driver.kit.lifecycle import Ending, on_thread_of
from kip30.driver.kit.threads import start_eventually, started
from kip30.errors import StoreError, UnavailableError
from kip30_backends.cassandra import schema
from kip30_backends.cassandra.claims import Claims
from kip30_backends.cassandra.client.connection import Connection, once_known
from kip30_backends.cassandra.client.library import Node, Row, Statement, Wire
from kip30_backends.cassandra.client.statements import Statements
from kip30_backends.cassandra.folding import Folds
from kip30_backends.cassandra.request import Answer, Ask, Calls, acknowledged
from kip30_backends.cassandra.settings import CassandraSettings
from kip30_backends.cassandra.snapshots import ResurrectedRows, States
from kip30_backends.cassandra.watch import Watches

_MUCH = 1.0


class Reading(NamedTuple):
    """How many seconds the clock of *node* is ahead of the one here, give or take *doubt*."""

    node: str
    ahead: float
    doubt: float


def read(wire: Wire, statement: Statement, seconds: float) -> list[Reading]:
    """Ask all nodes at once for the time, and return what came of it in so many *seconds*."""
    asked = [_asked(wire, statement, node) for node in wire.nodes()]
    wait(asked, seconds)
    return [one.result() for one in asked if one.done() and one.exception() is None]


def judge(readings: Sequence[Reading], margin_seconds: float) -> str:
    """Say how well clocks agree.

    Raises:
        StoreError: Those of two nodes are further apart than the margin of a lease.
    """
    first, last = min(readings, key=_ahead), max(readings, key=_ahead)
    apart = last.ahead - first.ahead
    if apart - first.doubt - last.doubt > margin_seconds:
        raise StoreError(
            f"the clock of Cassandra at {last.node} is {apart:.1f} s ahead of the one at"
            f" {first.node}: claims may end there while their holders still rely on them;"
            " have NTP set the clocks of all nodes"
        )
    return f"{_agreement(readings, apart)}this one {_here((first.ahead + last.ahead) / 2)}"


def _ahead(reading: Reading) -> float:
    return reading.ahead


def _agreement(readings: Sequence[Reading], apart: float) -> str:
    return f"nodes {1000 * apart:.0f} ms apart, " if len(readings) > 1 else ""


def _here(nodes_ahead: float) -> str:
    away = abs(nodes_ahead)
    side = "behind" if nodes_ahead > 0 else "ahead"
    if away < _MUCH:
        return f"{1000 * away:.0f} ms {side}"
    return f"{away:.1f} s {side}, which makes writes slower: have NTP set it"


def _asked(wire: Wire, statement: Statement, node: Node) -> Future[Reading]:
    reading: Future[Reading] = Future()
    sent_at = time.time()

    def answered(rows: Sequence[Row]) -> None:
        doubt = (time.time() - sent_at) / 2
        ahead = rows[0]["milliseconds"] / 1000 - sent_at - doubt
        reading.set_result(Reading(str(node.endpoint), ahead, doubt))

    wire.send(statement, node, answered, lambda one: fail(reading, UnavailableError(one.said)))
    return reading


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
        resurrected = partial(ResurrectedRows, context.clock, context.session_timeout_seconds)
        self.watches = Watches(self.states, self.calls, settings.pull_seconds, resurrected)

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
        readings = read(self.wire, statement, self._context.operation_timeout_seconds / 2)
        return judge(readings, self._context.margin_seconds) if readings else "not told"

    def close(self) -> None:
        """End the lease, all watches, calls, threads and connections. Idempotent."""
        self._ending.once(self._close)

    def drop(self) -> None:
        """Close, because nothing refers to this any more; on any thread."""
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
        schema.ensure(self.wire, self._settings, context.connect_timeout_seconds / 2)
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
            schema.spread(self.wire, self._settings)
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
