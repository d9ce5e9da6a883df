"""Asking for sessions: how long they last, and what servers have to say to that.

Consul keeps a session for exactly twice its TTL, so half the session timeout is asked for.

It ends all sessions of a node at once when that node leaves the catalog, and a server is removed
from there seconds after the others lose contact with it (Autopilot). A client that was cut off
with the server would still believe in its session. So sessions belong to a node of their own,
which no agent runs on and nothing but an operator removes.
"""

import json
import logging
import re
from typing import Any

from kip30.driver import Context
from kip30.driver.lease import Lease
from kip30.errors import ConfigError
from kip30_backends.consul import transactions
from kip30_backends.consul.errors import SESSION_NODE, NodeMissingError, TooShortError
from kip30_backends.consul.talk import Ask, Talk
from kip30_backends.consul.wire import Answer

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

    def session(self, talk: Talk) -> Session:
        """Return a new session.

        Raises:
            ConfigError: The servers grant none that ends as soon as was asked for.
            DefiniteError: They grant none. Nothing was done.
        """
        try:
            return self._asked_for(talk)
        except TooShortError as error:
            self._accept(_TIMES_TTL * _floor(error), error)
        return self._asked_for(talk)

    def _accept(self, least: float, error: TooShortError) -> None:
        """Do with the shortest timeout there is, unless somebody asked for another one."""
        if self._context.session_timeout_was_asked:
            raise ConfigError(
                f"plugin.session.timeout.ms is below {least * 1000:g}, which is the least these"
                " servers grant (twice their session_ttl_min): raise it, or lower theirs"
            ) from error
        _log.warning("sessions last %g s, the least that the servers grant", least)
        self.timeout_seconds = least

    def _asked_for(self, talk: Talk) -> Session:
        """Return a new session, after registering the node of sessions if it is missing."""
        try:
            return self._created(talk)
        except NodeMissingError:
            talk.ask(_registration())
        return self._created(talk)

    def _created(self, talk: Talk) -> Session:
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
        ident = talk.ask(created)
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
