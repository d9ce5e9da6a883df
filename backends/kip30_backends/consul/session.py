"""The session of a backend: opened with it, renewed until closed, and opened anew once lost.

Consul keeps a session for exactly twice its TTL, so half the session timeout is requested.

It ends all sessions of a node at once when that node leaves the catalog, and a server is removed
from there seconds after the others lose contact with it (Autopilot). A client that was cut off
with the server would still believe in its session. So sessions belong to a node of their own,
which no agent runs on and nothing but an operator removes.
"""

import json
import logging
import re
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from kip30.driver import Context
from kip30.driver.lease import Lease
from kip30.errors import ClosedError, ConfigError, Kip30Error, UnavailableError
from kip30_backends.consul import transactions
from kip30_backends.consul.client.exchange import OK_OR_ABSENT, Ask, Exchange
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.errors import (
    SESSION_NODE,
    Failure,
    NodeMissingError,
    TooShortError,
    TroubleError,
)
from kip30_backends.consul.request import Calls
from kip30_backends.consul.transactions import is_filtered

_log = logging.getLogger(__name__)

_TIMES_TTL = 2
_MAX_LOCK_DELAY_SECONDS = 60.0
_DURATION = re.compile(r"([0-9.]+)(h|ms|m|s)")
_NO_ADDRESS = "0.0.0.0"  # noqa: S104  Consul wants an address, and nothing listens at this one
_NODE_META = {"kip30": "holds the sessions of all clients: deregistering it ends them"}
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Session:
    """A session of the store, how long it may be believed in, and what it holds.

    Attributes:
        held: The keys that it holds.
    """

    def __init__(self, ident: str, lease: Lease) -> None:
        """Hold nothing yet."""
        self.ident = ident
        self.lease = lease
        self.held: set[str] = set()


class Grants:
    """What one client asks for.

    Attributes:
        timeout_seconds: How long its sessions last without renewal.
    """

    def __init__(self, context: Context) -> None:
        """Ask for sessions as *context* has them, or as servers grant them."""
        self._context = context
        self.timeout_seconds = context.session_timeout_seconds

    @property
    def lock_delay_seconds(self) -> float:
        """How long a key stays free after the session that held it has ended by itself."""
        return min(self._context.margin_seconds, _MAX_LOCK_DELAY_SECONDS)

    def describe(self) -> str:
        """Say how long sessions last, and why that is not what one might expect."""
        told = f"{self.timeout_seconds:g} s"
        if self.timeout_seconds == self._context.session_timeout_seconds:
            return told
        return f"{told} (the least that these servers grant)"

    def session(self, exchange: Exchange) -> Session:
        """Return a new session.

        Raises:
            ConfigError: The servers grant none that ends as soon as was asked for.
            DefiniteError: They grant none. Nothing was done.
        """
        try:
            return self._asked_for(exchange)
        except TooShortError as error:
            self._accept(_TIMES_TTL * _floor(error), error)
        return self._asked_for(exchange)

    def _accept(self, least: float, error: TooShortError) -> None:
        """Use the shortest timeout there is, unless another one was configured."""
        if self._context.session_timeout_was_asked:
            raise ConfigError(
                f"plugin.session.timeout.ms is below {least * 1000:g}, which is the least these"
                " servers grant (twice their session_ttl_min): raise it, or lower theirs"
            ) from error
        _log.warning("sessions last %g s, the least that the servers grant", least)
        self.timeout_seconds = least

    def _asked_for(self, exchange: Exchange) -> Session:
        """Return a new session, after registering the node of sessions if it is missing."""
        try:
            return self._created(exchange)
        except NodeMissingError:
            exchange.ask(_registration())
        return self._created(exchange)

    def _created(self, exchange: Exchange) -> Session:
        sent_at = self._context.clock.now()
        wanted: dict[str, Any] = {
            "Name": "kip30",
            "TTL": _duration(self.timeout_seconds / _TIMES_TTL),
            "LockDelay": _duration(self.lock_delay_seconds),
            "Behavior": "delete",
            "Node": SESSION_NODE,
            # Consul's own check of the agent would end the session when the network has hiccups.
            "Checks": [],
            "NodeChecks": [],
        }
        created = Ask("PUT", "/v1/session/create", _ident, json.dumps(wanted).encode())
        ident = exchange.ask(created)
        timeout = self.timeout_seconds
        return Session(ident, self._context.lease(sent_at=sent_at, timeout_seconds=timeout))


def _registration() -> Ask[transactions.Outcome]:
    """Return the request that registers the node of sessions; it is safe to retry."""
    node = transactions.node(SESSION_NODE, _NO_ADDRESS, _NODE_META)
    return transactions.write([node])._replace(writes=False)


def _ident(answer: Answer) -> str:
    told: dict[str, Any] = json.loads(answer.body)
    ident: str = told["ID"]
    return ident


def _floor(error: TooShortError) -> float:
    """Return the shortest TTL that the servers grant, in seconds, of what they complain."""
    _, _, between = str(error).partition("must be between [")
    parts = _DURATION.findall(between.partition("=")[0])
    if not parts:
        raise error
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1e6)}us"


_RENEWALS_PER_TIMEOUT = 6
_RENEWALS_PER_LOOK = 2
"""After how many renewals what the session holds is checked: a third of the timeout."""
_PATIENCE_AFTER_TROUBLE = 2
_AFTER_TROUBLE = 0.1
_MOST_FREED = transactions.MAX_OPS // 2
_HIDDEN = Failure(
    HTTPStatus.FORBIDDEN, f"token lacks permission 'session:read' on \"{SESSION_NODE}\""
)
_ENDED = "the store ended the session"


class Sessions:
    """Opens, renews and ends the sessions of one backend, one at a time. Thread-safe.

    Attributes:
        grants: What is asked for, and what is had.
        on_renewed: Called three times in a session timeout while a session lives; it must not wait.
    """

    def __init__(self, context: Context, calls: Calls) -> None:
        """Ask for sessions with *calls*."""
        self.grants = Grants(context)
        self._context = context
        self._calls = calls
        self._lock = threading.Lock()
        # Held while a session is opened, so that two claims do not open two.
        self._opening = threading.Lock()
        # Set once, under the lock: no session is adopted after that.
        self._closing = threading.Event()
        # The session that new claims use; None before the first and after a lost one. Written
        # under the lock; its renewals end when it is replaced.
        self._session: Session | None = None
        # A lost session that may still stand in the store. The next one is opened after that has
        # been ended there, or its claims would be in the way. Written under the lock or _opening.
        self._over: Session | None = None
        # The threads that renew; one that was lost may still be in a request.
        self._threads: set[threading.Thread] = set()
        self.on_renewed: Callable[[], None] = _idle

    def current(self, exchange: Exchange) -> Session:
        """Return the session there is, or open one.

        Raises:
            ClosedError: Closed meanwhile.
            ConfigError: The servers grant none that ends as soon as was asked for.
            DefiniteError: They grant none. Nothing was done.
        """
        session = self._session
        if session is not None and session.lease.is_valid():
            return session
        if not self._opening.acquire(timeout=max(0.0, exchange.left)):
            raise UnavailableError("no session was granted in time: nothing was claimed")
        try:
            session = self._session
            if session is not None and session.lease.is_valid():
                return session
            if session is not None:
                self.lost(session, "not renewed in time")
            self._clear_away(exchange)
            return self._open(exchange)
        finally:
            self._opening.release()

    def lost(self, session: Session, reason: str = _ENDED) -> None:
        """Take note that *session* is over."""
        with self._lock:
            if session is self._session:
                self._session, self._over = None, session
        session.lease.end(reason)

    def expire(self) -> None:
        """End the session in the store, as if it had run out; this client is not notified."""
        session = self._session
        if session is not None:
            self._calls.exchange(self._calls.seconds).ask(_destroy(session))

    def close(self) -> None:
        """End the session, here and in the store, and open no other one.

        One that was lost may still be there, with all that it held, until it is cleared away.
        """
        with self._lock:
            self._closing.set()
            session = self._session or self._over
        if session is not None:
            self.lost(session, "closed")
            self._end_quietly(session)

    def join(self) -> None:
        """Wait until nothing is renewed any more, unless this is called on a thread that does."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join()

    def _clear_away(self, exchange: Exchange) -> None:
        """End the session before in the store too: what it still has there would be in the way."""
        if self._over is not None:
            _end_in_store(self._over, exchange)
            self._over = None

    def _end_quietly(self, session: Session) -> None:
        try:
            _end_in_store(session, self._calls.exchange(self._calls.seconds / 2))
        except Kip30Error as error:
            _log.debug("the session is left to run out: %s", error)

    def _open(self, exchange: Exchange) -> Session:
        if self._closing.is_set():
            raise ClosedError("the backend is closed")
        session = self.grants.session(exchange)
        try:
            self._adopt(session)
        except Kip30Error as error:
            self.lost(session, str(error))
            self._end_quietly(session)
            raise
        return session

    def _adopt(self, session: Session) -> None:
        """Have *session* used and renewed, by a thread of its own.

        Raises:
            ClosedError: Closed meanwhile.
            UnavailableError: There is no thread to be had.
        """
        thread = threading.Thread(
            target=self._keep, args=[session], name="kip30-consul-session", daemon=True
        )
        with self._lock:
            if self._closing.is_set():
                raise ClosedError("the backend is closed")
            self._session = session
            try:
                thread.start()
            except RuntimeError as error:
                raise UnavailableError(f"nobody would renew the session: {error}") from error
            self._threads.add(thread)

    def _keep(self, session: Session) -> None:
        """Renew *session* until it is over.

        Often, and with little patience: while a cluster elects its leader, a server holds back
        what it is asked, and goes on doing so for a while when there is one. A question that is
        put anew is answered at once.
        """
        pause = backoff = self._interval
        renewals = 0
        try:
            while not self._closing.wait(pause) and session is self._session:
                if session.lease.expire():
                    _log.info("the session was not renewed in time")
                    return
                began = self._context.clock.now()
                if self._renew(session, began, backoff):
                    pause = max(0.0, self._interval - (self._context.clock.now() - began))
                    backoff = self._interval
                    renewals += 1
                    if not renewals % _RENEWALS_PER_LOOK:
                        self.on_renewed()
                else:
                    pause, backoff = _AFTER_TROUBLE, _PATIENCE_AFTER_TROUBLE * self._interval
        finally:
            self._threads.discard(threading.current_thread())

    def _renew(self, session: Session, sent_at: float, backoff: float) -> bool:
        """Renew *session* in so many seconds; say whether the store has done so."""
        try:
            renewed = self._is_renewed(
                session, self._calls.exchange(min(backoff, self._calls.seconds))
            )
        except Kip30Error as error:
            _log.debug("the session was not renewed: %s", error)
            return False
        except Exception:  # noqa: BLE001  nothing would be renewed any more
            _log.exception("the session was not renewed")
            return False
        if renewed:
            session.lease.renewed(sent_at)
        return renewed

    def _is_renewed(self, session: Session, exchange: Exchange) -> bool:
        """Have a quorum confirm that *session* exists, and renew it by the same server.

        A leader that was cut off or frozen renews sessions alone until it notices. Whoever
        confirms leads after this was sent, so a later leader counts the timeout from later; and
        that server knows of no earlier leader any more whom it could ask for the renewal.
        """
        if not exchange.ask(_look_up(session)):
            self.lost(session)
            return False
        confirmed_by = exchange.answered_by
        return exchange.ask(_renewal(session)) and exchange.answered_by is confirmed_by

    @property
    def _interval(self) -> float:
        return self.grants.timeout_seconds / _RENEWALS_PER_TIMEOUT


def _end_in_store(session: Session, exchange: Exchange) -> None:
    """Free what *session* holds, lest its lock-delay keep others out, and end it."""
    held = list(session.held)
    for at in range(0, len(held), _MOST_FREED):
        part = held[at : at + _MOST_FREED]
        refused = {part[one.number // 2] for one in _free(session, part, exchange).refusals}
        rest = [key for key in part if key not in refused]
        if refused and rest:
            _free(session, rest, exchange)
    exchange.ask(_destroy(session))


def _free(session: Session, keys: list[str], exchange: Exchange) -> transactions.Outcome:
    """Delete *keys*, unless another session holds one of them, or none does.

    What was deleted unheard is refused the next time: *session* does not hold it any more.
    """
    checked = [(transactions.is_held(key, session.ident), transactions.delete(key)) for key in keys]
    return exchange.ask(transactions.clear([one for pair in checked for one in pair]))


def _renewal(session: Session) -> Ask[bool]:
    return Ask("PUT", f"/v1/session/renew/{session.ident}", _is_there, answers=OK_OR_ABSENT)


def _look_up(session: Session) -> Ask[bool]:
    target = f"/v1/session/info/{session.ident}?consistent"
    return Ask("GET", target, _is_there)


def _destroy(session: Session) -> Ask[None]:
    return Ask("PUT", f"/v1/session/destroy/{session.ident}", _nothing)


def _is_there(answer: Answer) -> bool:
    """Say whether an answer tells of a session; raises `TroubleError` if it may not be seen."""
    if is_filtered(answer):
        raise TroubleError(_HIDDEN)
    return answer.status == HTTPStatus.OK and len(json.loads(answer.body)) > 0


def _idle() -> None:
    """Stand in for a look at what the session holds."""


def _nothing(_answer: Answer) -> None:
    """Learn nothing from an answer but that it came."""
