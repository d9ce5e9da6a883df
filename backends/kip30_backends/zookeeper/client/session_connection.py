"""One session with the servers: the only place that knows the private parts of kazoo.

kazoo keeps the connection: hosts, handshake, authentication, reconnection. An `Transport` sends and
receives on it, because kazoo offers no way to send requests that it does not know, to learn when a
request left, or to receive an event of a persistent watch.
"""

# ruff: noqa: SLF001  see above

import logging
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from kazoo.exceptions import (
    AuthFailedError,
    SessionClosedRequireSaslError,
    SessionExpiredError,
)
from kazoo.protocol.connection import STOP_CONNECTING, ConnectionDropped
from kazoo.protocol.states import KazooState, KeeperState

from kip30.config import Address
from kip30.driver.clock import Clock
from kip30.driver.kit import fork_safety
from kip30.driver.kit.dialing import lookup
from kip30.driver.kit.thread_start import started
from kip30.errors import UnavailableError
from kip30_backends.zookeeper.calls import SyncPoint
from kip30_backends.zookeeper.client.four_letter_words import FourLetterWords
from kip30_backends.zookeeper.client.kazoo_setup import Server, SessionIdentity, WaitTimeout, make
from kip30_backends.zookeeper.client.transport import (
    OpenConnection,
    RenewalTracker,
    Transport,
    TransportHandler,
)

_TIMEOUT_PER_READ = 1.5
# Half a tick, and a little for a leader that is late. Where the tick is not known it is at most
# half of the session timeout, for servers grant no less than two ticks unless configured to.
_PING_INTERVAL_PER_TICK = 0.52
_TICK_PER_TIMEOUT = 0.5
_THREAD = "kip30-zookeeper-mode"
_LOGIN_PAUSE = 0.5
_POLL_SECONDS = 0.05
_END_SECONDS = 1.0
_ALONE = "standalone"
_FOLLOWING = {"follower", "observer"}

log: logging.Logger = logging.getLogger(__name__)


class Owner(TransportHandler, Protocol):
    """Receives the events of a session, on the connection's thread."""

    def connected(
        self, client: "SessionConnection", sent_at: float, timeout_seconds: float
    ) -> None:
        """Record that an answer to a request sent at *sent_at* confirms the session."""
        ...

    def over(self, client: "SessionConnection", reason: str) -> None:
        """Record that the session has ended."""
        ...


class SessionConnection:
    """One session with the servers, on a thread of its own.

    Attributes:
        trouble: Why the last connection ended, or could not be made; None while there is one.
        peer: The ``host:port`` of the last connection.
        live: Whether there is a connection.
        expired: Whether the servers said that the session has ended.
    """

    def __init__(  # noqa: PLR0913  each says one thing about the session
        self,
        server: Server,
        owner: Owner,
        clock: Clock,
        timeout_seconds: float,
        *,
        identity: SessionIdentity | None = None,
        unanswered_gap_seconds: float = 0.0,
    ) -> None:
        """Prepare to connect, taking up *identity* if there is one.

        A server that does not answer may still have renewed the session; so the next attempt after
        all servers starts that much later. A server that closes the connection has not.
        """
        self.trouble: BaseException | None = None
        self.peer = ""
        self.live = threading.Event()
        self.expired = False
        self._owner = owner
        self._clock = clock
        # All that follows is written by the connection's thread.
        # The transport of the present connection; None between two.
        self._transport: Transport | None = None
        # Requests to the server of the last connection that need no session.
        self._words: FourLetterWords | None = None
        # The threads that ask for the mode of a connection's server; those of former connections
        # have been cut off, and may still wait for a name server.
        self._asking: list[threading.Thread] = []
        # How long a server may be silent, as kazoo negotiated with the last one.
        self._patience_seconds = timeout_seconds
        self._unanswered_gap_seconds = unanswered_gap_seconds
        # The servers' tick, if it is known. Written by the thread that asks for it.
        self._tick_seconds = server.tick_seconds
        # How many servers there are, and how many attempts got no answer.
        self._servers = len(server.hosts.split(","))
        self._silences = 0
        # Whether there was a connection before. Then a refused login is tried again until the lease
        # ends: the password may be about to be replaced, and a server that stops refuses as well.
        self._was_live = False
        self._logins = server.logins
        # The credentials of the present connection, or of the last one.
        self._login = server.logins.latest
        self._kazoo = make(server, timeout_seconds, identity)
        self._connection = self._kazoo._connection
        self._connection._connect_attempt = self._attempt
        self._connection._expand_client_hosts = self._addresses
        self._kazoo.add_listener(self._state_changed)
        fork_safety.register(self)

    @property
    def identity(self) -> SessionIdentity:
        """The identity with which the session can be taken up again."""
        return SessionIdentity(self._kazoo._session_id, self._kazoo._session_passwd)

    @property
    def unproven(self) -> SyncPoint | None:
        """The oldest unanswered request for a quorum, if there is one."""
        transport = self._transport
        return transport.unproven if transport else None

    @property
    def progress(self) -> int:
        """The newest zxid that the servers have sent to this session; 0 before the first one."""
        return int(self._kazoo.last_zxid)

    @property
    def refused(self) -> AuthFailedError | None:
        """The refusal of the login, while there is no connection because of it."""
        trouble = None if self.live.is_set() else self.trouble
        return trouble if isinstance(trouble, AuthFailedError) else None

    def start(self) -> None:
        """Start to connect.

        Raises:
            UnavailableError: The system has no thread or no descriptor to spare. Nothing was sent.
        """
        try:
            self._kazoo.start_async()
        except (RuntimeError, OSError) as error:
            raise UnavailableError(f"nothing was sent: {error}") from error

    def wake(self) -> None:
        """Make the thread check for requests to send."""
        transport = self._transport
        if transport is not None:
            transport.wake()

    def prove(self) -> None:
        """Request a proof of the session, which takes a quorum of the servers."""
        transport = self._transport
        if transport is not None:
            transport.prove()

    def log_in_again(self) -> bool:
        """Return whether there are other credentials than those that the server knows.

        Then nothing more is sent over this connection, and once it has answered all, another one
        is made with them. For the connection's thread.
        """
        transport = self._transport
        if transport is None or self._logins.read() == self._login:
            return False
        transport.leave()
        return True

    def drop(self) -> None:
        """Break the connection, so that another one is made."""
        with suppress(OSError, AttributeError):
            self._connection._socket.shutdown(2)

    def status(self) -> dict[str, str]:
        """Return the server's description of itself, line by line; nothing if it gives none."""
        words = self._words
        return words.status() if words else {}

    def end(self) -> bool:
        """Request the end of the session, and return whether there is a connection for that."""
        transport = self._transport
        if transport is not None:
            transport.close()
        return transport is not None

    def close(self, patience_seconds: float) -> None:
        """End the session on the server, if it answers in time, and then the thread."""
        try:
            if self.end():
                self._connection.connection_stopped.wait(patience_seconds)
        finally:
            self.disconnect()

    def abandon(self) -> None:
        """In a forked child: drop the connection, which stays open for the parent.

        If the child kept it, the server would not see it end while the child lives.
        """
        self._transport = None
        if self._words is not None:
            self._words.abandon()
        connection = self._connection
        for one in (connection._socket, connection._read_sock, connection._write_sock):
            if one is not None:
                one.close()

    def disconnect(self) -> None:
        """End the threads and the connection without notifying the server."""
        self._kazoo._stopped.set()
        routine = self._connection._connection_routine
        while routine is not None and routine.is_alive():
            self.drop()
            routine.join(0.02)
        with suppress(Exception):
            self._connection.connection_stopped.set()
            self._connection.close()
        # They have ended or are about to, but for one that a name server keeps: nothing ends that.
        until = time.monotonic() + _END_SECONDS
        for thread in self._asking:
            thread.join(max(0.0, until - time.monotonic()))

    def _addresses(self) -> list[tuple[str, str, int]]:
        """Return name, address and port of each server; none once this is to end.

        kazoo calls this before it tries each of them, and would wait for the name servers.
        """
        found = list[tuple[str, str, int]]()
        for host, port in self._kazoo.hosts:
            looking = lookup(Address(host, port))
            while not looking.done() and not self._kazoo._stopped.is_set():
                wait([looking], _POLL_SECONDS)
            if self._kazoo._stopped.is_set():
                return []
            try:
                places = (place for *_, place in looking.result())
                found += [(host, str(place[0]), int(place[1])) for place in places]
            except OSError as error:
                self.trouble = error
                log.info("no address of %s: %s", host, error)
        return found

    def _attempt(self, host: str, address: str, port: int, retry: Any) -> object:
        """Connect and serve the connection until it breaks; kazoo calls this repeatedly."""
        begun = time.monotonic()
        self._become(KeeperState.CONNECTING)
        try:
            transport = self._connect(host, address, port)
            retry.reset()
            transport.serve()
        except SessionExpiredError as error:
            self.trouble = error
            self._become(KeeperState.EXPIRED_SESSION)
            # kazoo calls no listener for a session that was taken up and never confirmed.
            self._ended()
        except (AuthFailedError, SessionClosedRequireSaslError) as error:
            self.trouble = error
            if self._was_live and isinstance(error, AuthFailedError):
                self._become(KeeperState.CONNECTING)
                self._kazoo._stopped.wait(_LOGIN_PAUSE)
                return None
            self._become(KeeperState.AUTH_FAILED)
            return STOP_CONNECTING
        except (ConnectionDropped, WaitTimeout, OSError, struct.error) as error:
            self.trouble = error.__context__ or error
            log.info("no connection to %s:%s: %s", host, port, self.trouble)
            self._become(KeeperState.CONNECTING)
            if isinstance(error, WaitTimeout):
                self._unanswered(begun)
        else:
            self._become(KeeperState.CLOSED)
            return STOP_CONNECTING
        finally:
            self._hang_up()
        return None

    def _unanswered(self, begun: float) -> None:
        """Pause once each server was tried without success; another one may answer at once."""
        self._silences += 1
        if self._silences % self._servers == 0:
            pause = begun + self._unanswered_gap_seconds - time.monotonic()
            self._kazoo._stopped.wait(max(0.0, pause))

    def _become(self, state: str) -> None:
        """Make kazoo end the requests whose answer will not come any longer."""
        self.live.clear()
        self._transport = None
        self._kazoo._session_callback(state)

    def _connect(self, host: str, address: str, port: int) -> Transport:
        self._connection._socket, self._connection._xid = None, 0
        self._login = self._logins.for_connection()
        self._login.give_to(self._kazoo)
        sent_at = self._clock.now()
        read_ms, write_ms = self._connection._connect(host, address, port)
        self.peer = f"{host}:{port}"
        self._patience_seconds = write_ms / 1000
        self.trouble = None
        timeout_seconds = read_ms * _TIMEOUT_PER_READ / 1000
        renewals = RenewalTracker(sent_at, self._ping_interval(timeout_seconds))
        transport = self._transport = Transport(self._link(), self._owner, self._clock, renewals)
        self.live.set()
        self._was_live = True
        self._words = FourLetterWords(partial(self._connect_beside, host))
        self._start_to_ask(partial(self._ask, transport, renewals, timeout_seconds, self._words))
        self._owner.connected(self, sent_at, timeout_seconds)
        transport.wake()
        return transport

    def _ping_interval(self, timeout_seconds: float) -> float:
        """Return how far apart the pings of the servers' leader are at most."""
        tick = self._tick_seconds
        return _PING_INTERVAL_PER_TICK * (tick or _TICK_PER_TIMEOUT * timeout_seconds)

    def _start_to_ask(self, asking: Callable[[], None]) -> None:
        """Start a thread for *asking*.

        Without one, the server counts as one that does not follow: reads then take a quorum's
        consent, which is slower and equally safe.
        """
        thread = threading.Thread(target=asking, name=_THREAD, daemon=True)
        if started(thread):
            self._asking = [one for one in self._asking if one.is_alive()] + [thread]

    def _ask(
        self,
        transport: Transport,
        renewals: RenewalTracker,
        timeout_seconds: float,
        words: FourLetterWords,
    ) -> None:
        self._ask_mode(transport, words)
        if self._tick_seconds is None:
            self._ask_tick(words)
        tick = self._tick_seconds
        renewals.interval_seconds = self._ping_interval(timeout_seconds)
        if tick is not None and tick > timeout_seconds:
            log.warning(
                "the servers' tick of %g s is longer than the session timeout of %g s: leases"
                " cannot be renewed in time; raise plugin.session.timeout.ms",
                tick,
                timeout_seconds,
            )

    def _ask_tick(self, words: FourLetterWords) -> None:
        """Ask for the servers' tick, which all of them have in common; few are allowed to tell."""
        tick = words.configuration().get("tickTime", "")
        if tick.isdecimal() and int(tick) > 0:
            self._tick_seconds = int(tick) / 1000

    def _link(self) -> OpenConnection:
        connection = self._connection
        reader, writer = connection._read_sock, connection._write_sock
        if reader is None or writer is None:  # kazoo drops both when it is stopped meanwhile
            raise ConnectionDropped("closed while connecting")
        return OpenConnection(
            sock=connection._socket,
            wakeup_reader=reader,
            wakeup_writer=writer,
            write_seconds=self._patience_seconds,
            pending=self._kazoo._pending,
            progressed=self._progressed,
        )

    def _progressed(self, zxid: int) -> None:
        """Make kazoo connect only to servers that know as much as this client has seen."""
        self._kazoo.last_zxid = zxid

    def _hang_up(self) -> None:
        if self._words is not None:
            self._words.cut()
        sock = self._connection._socket
        if sock is not None:
            sock.close()

    def _state_changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._ended()

    def _ended(self) -> None:
        self._kazoo._stopped.set()  # otherwise kazoo would begin another session itself
        self.expired = self._kazoo._state == KeeperState.EXPIRED_SESSION
        self._owner.over(self, "the store ended the session")

    def _ask_mode(self, transport: Transport, words: FourLetterWords) -> None:
        """Test whether a sync makes the server catch up; that does not change while connected.

        One address for several servers may be that of a load balancer, and another server may
        answer than the session's, which may be the leader.
        """
        mode = words.status().get("Mode")
        transport.follows = mode == _ALONE or (mode in _FOLLOWING and self._has_addresses())

    def _has_addresses(self) -> bool:
        """Return whether the names of the servers resolve to more than one address."""
        try:
            family = self._connection._socket.family
            found = [
                socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
                for host, port in self._kazoo.hosts
            ]
        except (OSError, AttributeError):
            return False
        return len({address for infos in found for *_, address in infos}) > 1

    def _connect_beside(self, host: str) -> socket.socket:
        """Connect once more to the server of the session, which is named *host*."""
        try:
            address = self._connection._socket.getpeername()[:2]
        except AttributeError:  # kazoo drops the socket when it is stopped meanwhile
            raise ConnectionAbortedError("closed while connecting") from None
        connect = self._kazoo.handler.create_connection
        sock: socket.socket = connect(address, hostname=host, timeout=self._patience_seconds)
        return sock
