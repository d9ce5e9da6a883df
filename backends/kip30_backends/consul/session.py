"""The session of a backend: opened with it, renewed until closed, and opened anew once lost."""

import json
import logging
import threading
from collections.abc import Callable
from http import HTTPStatus

from kip30.driver import Context
from kip30.errors import ClosedError, Kip30Error, UnavailableError
from kip30_backends.consul import transactions
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.errors import SESSION_NODE, Failure, TroubleError
from kip30_backends.consul.grants import Grants, Session
from kip30_backends.consul.records import is_filtered
from kip30_backends.consul.talk import OK_OR_ABSENT, Ask, Talk
from kip30_backends.consul.wire import Answer

_log = logging.getLogger(__name__)

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
        self._opening = threading.Lock()
        self._closing = threading.Event()
        self._session: Session | None = None
        self._over: Session | None = None
        self._threads: set[threading.Thread] = set()
        self.on_renewed: Callable[[], None] = _idle

    def current(self, talk: Talk) -> Session:
        """Return the session there is, or open one.

        Raises:
            ClosedError: Closed meanwhile.
            ConfigError: The servers grant none that ends as soon as was asked for.
            DefiniteError: They grant none. Nothing was done.
        """
        session = self._session
        if session is not None and session.lease.is_valid():
            return session
        if not self._opening.acquire(timeout=max(0.0, talk.left)):
            raise UnavailableError("no session was granted in time: nothing was claimed")
        try:
            session = self._session
            if session is not None and session.lease.is_valid():
                return session
            if session is not None:
                self.lost(session, "not renewed in time")
            self._clear_away(talk)
            return self._open(talk)
        finally:
            self._opening.release()

    def lost(self, session: Session, reason: str = _ENDED) -> None:
        """Take note that *session* is over."""
        with self._lock:
            if session is self._session:
                self._session, self._over = None, session
        session.lease.end(reason)

    def expire(self) -> None:
        """End the session in the store, as if it had run out there; nobody here is told."""
        session = self._session
        if session is not None:
            self._calls.talk(self._calls.seconds).ask(_destroy(session))

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

    def _clear_away(self, talk: Talk) -> None:
        """End the session before in the store too: what it still has there would be in the way."""
        if self._over is not None:
            _end_in_store(self._over, talk)
            self._over = None

    def _end_quietly(self, session: Session) -> None:
        try:
            _end_in_store(session, self._calls.talk(self._calls.seconds / 2))
        except Kip30Error as error:
            _log.debug("the session is left to run out: %s", error)

    def _open(self, talk: Talk) -> Session:
        if self._closing.is_set():
            raise ClosedError("the backend is closed")
        session = self.grants.session(talk)
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
        pause = patience = self._interval
        renewals = 0
        try:
            while not self._closing.wait(pause) and session is self._session:
                if session.lease.expire():
                    _log.info("the session was not renewed in time")
                    return
                began = self._context.clock.now()
                if self._renew(session, began, patience):
                    pause = max(0.0, self._interval - (self._context.clock.now() - began))
                    patience = self._interval
                    renewals += 1
                    if not renewals % _RENEWALS_PER_LOOK:
                        self.on_renewed()
                else:
                    pause, patience = _AFTER_TROUBLE, _PATIENCE_AFTER_TROUBLE * self._interval
        finally:
            self._threads.discard(threading.current_thread())

    def _renew(self, session: Session, sent_at: float, patience: float) -> bool:
        """Renew *session* in so many seconds; say whether the store has done so."""
        try:
            renewed = self._is_renewed(
                session, self._calls.talk(min(patience, self._calls.seconds))
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

    def _is_renewed(self, session: Session, talk: Talk) -> bool:
        """Have a quorum confirm that *session* exists, and renew it by the same server.

        A leader that was cut off or frozen renews sessions alone until it notices. Whoever
        confirms leads after this was sent, so a later leader counts the timeout from later; and
        that server knows of no earlier leader any more whom it could ask for the renewal.
        """
        if not talk.ask(_look_up(session)):
            self.lost(session)
            return False
        confirmed_by = talk.answered_by
        return talk.ask(_renewal(session)) and talk.answered_by is confirmed_by

    @property
    def _interval(self) -> float:
        return self.grants.timeout_seconds / _RENEWALS_PER_TIMEOUT


def _end_in_store(session: Session, talk: Talk) -> None:
    """Free what *session* holds, lest its lock-delay keep others out, and end it."""
    held = list(session.held)
    for at in range(0, len(held), _MOST_FREED):
        part = held[at : at + _MOST_FREED]
        refused = {part[one.number // 2] for one in _free(session, part, talk).refusals}
        rest = [key for key in part if key not in refused]
        if refused and rest:
            _free(session, rest, talk)
    talk.ask(_destroy(session))


def _free(session: Session, keys: list[str], talk: Talk) -> transactions.Outcome:
    """Delete *keys*, unless another session holds one of them, or none does.

    What was deleted unheard is refused the next time: *session* does not hold it any more.
    """
    checked = [(transactions.is_held(key, session.ident), transactions.delete(key)) for key in keys]
    return talk.ask(transactions.clear([one for pair in checked for one in pair]))


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
