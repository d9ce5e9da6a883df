"""The session of a backend: opened with it, renewed until closed, and re-opened once lost.

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
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import Any

from kip30.driver import Context
from kip30.driver.kit.lifecycle import do_nothing
from kip30.driver.kit.session import CurrentSession
from kip30.driver.kit.thread_start import join_others
from kip30.driver.lease import Lease
from kip30.errors import AuthenticationError, ConfigError, Kip30Error, UnavailableError
from kip30_backends.consul import transactions
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.client.operation_requests import (
    OK_OR_ABSENT,
    OperationRequests,
    TypedRequest,
)
from kip30_backends.consul.errors import (
    SESSION_NODE,
    Failure,
    NodeMissingError,
    RequestFailedError,
    TooShortError,
)
from kip30_backends.consul.transactions import is_filtered

_log = logging.getLogger(__name__)

_TIMES_TTL = 2
_MAX_LOCK_DELAY_SECONDS = 60.0
_DURATION = re.compile(r"([0-9.]+)(h|ms|m|s)")
_NO_ADDRESS = "0.0.0.0"  # noqa: S104  Consul wants an address, and nothing listens at this one
_NODE_META = {"kip30": "holds the sessions of all clients: deregistering it ends them"}
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


class Session:
    """A session of the store, how long it may be believed in, and what it holds. Thread-safe.

    Attributes:
        held: The keys that it holds.
    """

    def __init__(self, ident: str, lease: Lease) -> None:
        """Start without claims."""
        self.ident = ident
        self.lease = lease
        self.held: set[str] = set()
        # The keys that it gave up last, with the index of their creation. Written under the lock.
        self._given_up: dict[str, int] = {}
        self._lock = threading.Lock()

    def takes(self, key: str) -> None:
        """Note that it holds *key*."""
        with self._lock:
            self.held.add(key)
            self._given_up.pop(key, None)

    def gives_up(self, key: str, created: int) -> None:
        """Note that it no longer holds *key*, which was created at index *created*."""
        with self._lock:
            self.held.discard(key)
            self._given_up.pop(key, None)
            self._given_up[key] = created
            if len(self._given_up) > _MOST_FREED:
                del self._given_up[next(iter(self._given_up))]

    def given_up(self) -> dict[str, int]:
        """Return the keys that it gave up last, with the index of their creation."""
        with self._lock:
            return self._given_up.copy()


class SessionKind:
    """The kind of session that one client requests.

    Attributes:
        timeout_seconds: How long its sessions last without renewal.
    """

    def __init__(self, context: Context) -> None:
        """Request sessions as *context* specifies, or as servers grant them."""
        self._context = context
        self.timeout_seconds = context.session_timeout_seconds

    @property
    def lock_delay_seconds(self) -> float:
        """Seconds for which a key stays free after the session that held it has expired."""
        return min(self._context.margin_seconds, _MAX_LOCK_DELAY_SECONDS)

    def describe(self) -> str:
        """Describe how long sessions last, and why that may differ from the configuration."""
        text = f"{self.timeout_seconds:g} s"
        if self.timeout_seconds == self._context.session_timeout_seconds:
            return text
        return f"{text} (the least that these servers grant)"

    def session(self, requests: OperationRequests) -> Session:
        """Return a new session.

        Raises:
            ConfigError: The servers grant none that ends as soon as was requested.
            DefiniteError: They grant none. Nothing was done.
        """
        try:
            return self._asked_for(requests)
        except TooShortError as error:
            self._accept(_TIMES_TTL * _floor(error), error)
        return self._asked_for(requests)

    def _accept(self, least: float, error: TooShortError) -> None:
        """Use the shortest timeout that is granted, unless another one was configured."""
        if self._context.session_timeout_is_configured:
            raise ConfigError(
                f"plugin.session.timeout.ms is below {least * 1000:g}, which is the least these"
                " servers grant (twice their session_ttl_min): raise it, or lower theirs"
            ) from error
        _log.warning("sessions last %g s, the least that the servers grant", least)
        self.timeout_seconds = least

    def _asked_for(self, requests: OperationRequests) -> Session:
        """Return a new session, after registering the node of sessions if it is missing."""
        try:
            return self._created(requests)
        except NodeMissingError:
            requests.ask(_registration())
        return self._created(requests)

    def _created(self, requests: OperationRequests) -> Session:
        sent_at = self._context.clock.now()
        wanted: dict[str, Any] = {
            "Name": "kip30",
            "TTL": _duration(self.timeout_seconds / _TIMES_TTL),
            "LockDelay": _duration(self.lock_delay_seconds),
            "Behavior": "delete",
            "Node": SESSION_NODE,
            # Consul's own check of the agent would end the session at a network hiccup.
            "Checks": [],
            "NodeChecks": [],
        }
        created = TypedRequest("PUT", "/v1/session/create", _ident, json.dumps(wanted).encode())
        ident = requests.ask(created)
        timeout = self.timeout_seconds
        return Session(ident, self._context.lease(sent_at=sent_at, timeout_seconds=timeout))


def _registration() -> TypedRequest[transactions.TransactionOutcome]:
    """Return the request that registers the node of sessions; it is safe to retry."""
    node = transactions.node(SESSION_NODE, _NO_ADDRESS, _NODE_META)
    return transactions.write([node])._replace(writes=False)


def _ident(answer: Answer) -> str:
    body: dict[str, Any] = json.loads(answer.body)
    ident: str = body["ID"]
    return ident


def _floor(error: TooShortError) -> float:
    """Return the shortest TTL that the servers grant, in seconds, from their message."""
    _, _, between = str(error).partition("must be between [")
    parts = _DURATION.findall(between.partition("=")[0])
    if not parts:
        raise error
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1e6)}us"


_RENEWALS_PER_TIMEOUT = 6
_RENEWALS_PER_LOOK = 2
"""Number of renewals after which `on_renewed` is called: a third of the timeout."""
_PATIENCE_AFTER_TROUBLE = 2
_AFTER_TROUBLE = 0.1
_MOST_FREED = transactions.MAX_OPS // 2
_HIDDEN = Failure(
    HTTPStatus.FORBIDDEN, f"token lacks permission 'session:read' on \"{SESSION_NODE}\""
)


class Sessions:
    """Opens, renews and ends the sessions of one backend, one at a time. Thread-safe.

    Attributes:
        kind: The kind of session that is requested, with the timeout that is granted.
        on_renewed: Called three times in a session timeout while a session lives; it must not
            block.
        on_released: Called with keys that this client has released; it must not block.
    """

    def __init__(self, context: Context, calls: Calls) -> None:
        """Request sessions with *calls*."""
        self.kind = SessionKind(context)
        self._context = context
        self._calls = calls
        # Set by `close`. It also ends the pauses of the renewing threads.
        self._closing = threading.Event()
        # The renewing threads; that of a lost session may still wait for a response.
        self._threads: set[threading.Thread] = set()
        self._current: CurrentSession[Session] = CurrentSession(
            open_one=lambda until: self.kind.session(calls.requests_by(until)),
            end=lambda session, until: _end_in_store(session, calls.requests_by(until)),
            adopted=self._start_renewal,
            closing_seconds=calls.seconds / 2,
        )
        self.on_renewed: Callable[[], None] = do_nothing
        self.on_released: Callable[[AbstractSet[str]], None] = do_nothing

    def current(self, requests: OperationRequests) -> Session:
        """Return the current session, or open one.

        Raises:
            ClosedError: Closed meanwhile.
            ConfigError: The servers grant none that ends as soon as was requested.
            DefiniteError: They grant none. Nothing was done.
        """
        return self._current.get(requests.until)

    def holds(self, key: str) -> bool:
        """Return whether the current session holds *key*."""
        session = self._current.known()
        return session is not None and key in session.held

    def mark_lost(self, session: Session) -> None:
        """Record that the store has ended *session*."""
        self._current.mark_lost(session)

    def expire_session(self) -> None:
        """End the session in the store, as if it had expired; this client is not notified."""
        session = self._current.known()
        if session is not None:
            self._calls.requests(self._calls.seconds).ask(_destroy(session))

    def close(self) -> None:
        """End the session, here and in the store, and open no other."""
        self._closing.set()
        self._current.close()

    def join(self) -> None:
        """Wait until all renewals have ended, unless called on a thread that renews."""
        join_others(*self._threads)

    def _start_renewal(self, session: Session) -> None:
        """Renew *session* on a thread of its own.

        Raises:
            UnavailableError: No thread can be started.
        """
        thread = threading.Thread(
            target=self._keep, args=[session], name="kip30-consul-session", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise UnavailableError(f"no thread to renew the session: {error}") from error
        self._threads.add(thread)

    def _keep(self, session: Session) -> None:
        """Renew *session* until it has ended.

        It retries often, after short timeouts: while a cluster elects its leader, a server holds
        requests back, and keeps doing so for a while when there is a leader. A new request is
        answered at once.
        """
        pause = timeout = self._interval
        renewals = 0
        try:
            while not self._closing.wait(pause) and session is self._current.known():
                if session.lease.expire():
                    return
                began = self._context.clock.now()
                if self._renew(session, began, timeout):
                    pause = max(0.0, self._interval - (self._context.clock.now() - began))
                    timeout = self._interval
                    renewals += 1
                    if not renewals % _RENEWALS_PER_LOOK:
                        self._look_for_returned(session)
                        self.on_renewed()
                else:
                    pause, timeout = _AFTER_TROUBLE, _PATIENCE_AFTER_TROUBLE * self._interval
        finally:
            self._threads.discard(threading.current_thread())

    def _renew(self, session: Session, sent_at: float, timeout: float) -> bool:
        """Renew *session* within *timeout*; return whether the store has done so."""
        try:
            renewed = self._is_renewed(
                session, self._calls.requests(min(timeout, self._calls.seconds))
            )
        except Kip30Error as error:
            _log.debug("the session was not renewed: %s", error)
            session.lease.renewal_failed(error)
            return False
        except Exception as error:  # noqa: BLE001  otherwise renewals would end
            _log.exception("the session was not renewed")
            session.lease.renewal_failed(error)
            return False
        if renewed:
            session.lease.record_renewal(sent_at)
        return renewed

    def _is_renewed(self, session: Session, requests: OperationRequests) -> bool:
        """Let a quorum confirm that *session* exists, and renew it by the same server.

        A leader that was cut off or frozen renews sessions alone until it notices. The server that
        confirms was the leader after this was sent, so a later leader counts the timeout from
        later; and that server no longer knows an earlier leader to which it could forward the
        renewal.
        """
        if not requests.ask(_look_up(session)):
            self.mark_lost(session)
            return False
        confirmed_by = requests.answered_by
        return requests.ask(_renewal(session)) and requests.answered_by is confirmed_by

    def _look_for_returned(self, session: Session) -> None:
        """Start to look whether a restored snapshot has brought back what *session* gave up.

        Nobody else could take it while this client renews the session.
        """
        given_up = session.given_up()
        if given_up:
            try:
                self._calls.pool.do(partial(self._give_up_again, session, given_up))
            except Kip30Error as error:
                _log.debug("what was given up is not looked for: %s", error)

    def _give_up_again(self, session: Session, given_up: Mapping[str, int]) -> None:
        requests = self._calls.requests(self._calls.seconds)
        try:
            found = requests.ask(transactions.read_granted([*given_up]))
            # A key that was taken anew since has a later index.
            back = [
                one
                for one in found.values()
                if one and one.session == session.ident and one.created <= given_up[one.key]
            ]
            if back:
                keys = [one.key for one in back]
                _log.warning("giving up again what the store brought back: %s", keys)
                requests.ask(transactions.clear(_deletions(back)))
        except Kip30Error as error:
            _log.debug("what was given up will be looked for again: %s", error)

    @property
    def _interval(self) -> float:
        return self.kind.timeout_seconds / _RENEWALS_PER_TIMEOUT


def _deletions(records: list[transactions.KVPair]) -> list[transactions.Operation]:
    """Return the operations that delete all *records*, unless one was written since."""
    checked = [
        (transactions.was_modified(one.key, one.modified), transactions.delete(one.key))
        for one in records
    ]
    return [*chain.from_iterable(checked)]


def _end_in_store(session: Session, requests: OperationRequests) -> None:
    """Delete what *session* holds, so that no lock-delay blocks other clients, and end it."""
    held = list(session.held)
    for at in range(0, len(held), _MOST_FREED):
        # The token may no longer write one of them: then they end with the session.
        with suppress(AuthenticationError):
            _free_part(session, held[at : at + _MOST_FREED], requests)
    requests.ask(_destroy(session))


def _free_part(session: Session, part: list[str], requests: OperationRequests) -> None:
    refused = {part[one.number // 2] for one in _free(session, part, requests).refusals}
    rest = [key for key in part if key not in refused]
    if refused and rest:
        _free(session, rest, requests)


def _free(
    session: Session, keys: list[str], requests: OperationRequests
) -> transactions.TransactionOutcome:
    """Delete *keys*, unless another session holds one of them, or none does.

    If the answer is lost, a retry is refused, because *session* no longer holds the keys.
    """
    checked = [(transactions.is_held(key, session.ident), transactions.delete(key)) for key in keys]
    return requests.ask(transactions.clear([*chain.from_iterable(checked)]))


def _renewal(session: Session) -> TypedRequest[bool]:
    return TypedRequest(
        "PUT", f"/v1/session/renew/{session.ident}", _is_there, answers=OK_OR_ABSENT
    )


def _look_up(session: Session) -> TypedRequest[bool]:
    target = f"/v1/session/info/{session.ident}?consistent"
    return TypedRequest("GET", target, _is_there)


def _destroy(session: Session) -> TypedRequest[None]:
    return TypedRequest("PUT", f"/v1/session/destroy/{session.ident}", do_nothing)


def _is_there(answer: Answer) -> bool:
    """Return whether an answer has a session; raises `RequestFailedError` if it may not be read."""
    if is_filtered(answer):
        raise RequestFailedError(_HIDDEN)
    return answer.status == HTTPStatus.OK and len(json.loads(answer.body)) > 0
