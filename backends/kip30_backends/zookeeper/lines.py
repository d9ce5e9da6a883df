"""The lines to the servers that sessions live on."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.driver import Context
from kip30_backends.zookeeper.client import Client, Owner
from kip30_backends.zookeeper.outbox import Operation, Outbox
from kip30_backends.zookeeper.session import Identity, Session
from kip30_backends.zookeeper.vendor import Server
from kip30_backends.zookeeper.watches import Watches

_ERA = 2**40


class Ground(NamedTuple):
    """What all sessions of a backend have in common.

    Attributes:
        former: The numbers of the last sessions that ended; `Sessions` adds to it.
    """

    context: Context
    server: Server
    outbox: Outbox
    watches: Watches
    former: deque[int]


class Line(Owner):
    """The connections of one session, one after the other. Its callbacks run on their thread."""

    def __init__(
        self,
        ground: Ground,
        era: int,
        lost: Callable[["Line", str], None],
    ) -> None:
        """Be about to connect; *lost* is told when the session is over.

        Answers are ordered after those of earlier eras: a server may have lost its past.
        """
        context = ground.context
        self.session: Session | None = None
        self.timeout_seconds = context.session_timeout_seconds
        self.settled = threading.Event()
        self.is_proven = False
        self.client = Client(ground.server, self, context.clock, self.timeout_seconds)
        self._context = context
        self._outbox = ground.outbox
        self._watches = ground.watches
        self._former = ground.former
        self._orders = itertools.count(era * _ERA)
        self._order = next(self._orders)
        self._lost = lost

    @override
    def connected(self, client: Client, sent_at: float, timeout_seconds: float) -> None:
        if self.session is None:
            self.timeout_seconds = timeout_seconds
            lease = self._context.lease(sent_at=sent_at, timeout_seconds=timeout_seconds)
            self.session = Session(client.identity, lease, self._former)
            self.settled.set()
        elif self.session.lease.expire():
            self._lost(self, "not renewed in time")
            return
        self._outbox.attach(client)
        self._watches.connected()

    @override
    def over(self, client: Client, reason: str) -> None:
        self.settled.set()
        self._lost(self, reason)

    @override
    def proven(self, sent_at: float) -> None:
        self.is_proven = True
        if self.session is not None and not self.session.lease.renewed(sent_at):
            self._lost(self, "not renewed in time")

    @override
    def outgoing(self, most: int) -> Sequence[Operation[Any]]:
        if self.session is not None and self.session.lease.expire():
            self._lost(self, "not renewed in time")
            return ()
        return self._outbox.take(most, self.session)

    @override
    def answered(self, operation: Operation[Any], outcome: object) -> None:
        if self.session is not None:
            operation.take(outcome, next(self._orders), self.session, self.client.progress)

    @override
    def happened(self, path: str, *, is_data: bool) -> None:
        self._watches.happened(path, is_data=is_data)


class Undertaker(Owner):
    """Takes up a session that is over for its client, to close it on the server.

    It says so on each new connection until the server agrees: whoever else still uses the session
    takes the connection away.

    Attributes:
        client: Not started yet.
        done: Set once the session is closed, expired, or refused with these credentials.
    """

    def __init__(self, context: Context, server: Server, identity: Identity) -> None:
        """Be about to close the session *identity*."""
        self.done = threading.Event()
        timeout = context.session_timeout_seconds
        self.client = Client(
            server,
            self,
            context.clock,
            timeout,
            identity=identity,
            unanswered_gap_seconds=1.5 * timeout,
        )

    @override
    def connected(self, client: Client, sent_at: float, timeout_seconds: float) -> None:
        client.end()

    @override
    def over(self, client: Client, reason: str) -> None:
        self.done.set()

    @override
    def proven(self, sent_at: float) -> None:
        """Renew nothing."""

    @override
    def outgoing(self, most: int) -> Sequence[Operation[Any]]:
        return ()

    @override
    def answered(self, operation: Operation[Any], outcome: object) -> None:
        """Ask nothing."""

    @override
    def happened(self, path: str, *, is_data: bool) -> None:
        """Watch nothing."""
