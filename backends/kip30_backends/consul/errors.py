"""Conversion of errors of HTTP and Consul to kip30's: one table of what is certain.

Errors that are not listed here are ambiguous: a write raises `OutcomeUnknownError`, a read
`UnavailableError`.
"""

from collections.abc import Iterable
from http import HTTPStatus
from typing import NamedTuple

from kip30.config.tls_failures import tls_advice
from kip30.driver.kit.error_table import Rule, error_of, first
from kip30.errors import (
    AuthenticationError,
    ClosedError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)

NO_ANSWER = 0
UNSENT = -1
UNTRUSTED = -2
HUNG_UP = -3
CUT_OFF = -4
"""Closed before (`HUNG_UP`) or after something was sent."""


LATE = "no answer in time"


class Failure(NamedTuple):
    """Failure of a request.

    Attributes:
        status: HTTP's status, or one of the constants above.
        said: The message.
        before: The failure of an earlier attempt, if this one is only that no answer came in time.
    """

    status: int
    said: str
    before: "Failure | None" = None

    def after(self, before: "Failure | None") -> "Failure":
        """Return the same, with the message of *before* if no answer came in time."""
        earlier = before and (before.before or before)
        if self.said != LATE or earlier is None or earlier.said == LATE:
            return self
        return self._replace(said=f"{LATE}; before that: {earlier.said}", before=earlier)


class RequestFailedError(Exception):
    """A request without a usable answer. It never leaves this package."""

    def __init__(self, failure: Failure) -> None:
        """Wrap *failure*."""
        super().__init__(failure.said)
        self.failure = failure


class TooShortError(StoreError):
    """The servers grant no session that ends so soon. Nothing was done."""


class NodeMissingError(StoreError):
    """The node of sessions is not registered. Nothing was done."""


SESSION_NODE = "kip30-sessions"
"""The node in Consul's catalog to which all sessions belong."""

NO_LEADER = "its servers have no leader: is a majority of them up, and can they reach each other?"
_MAX_MESSAGE = 400
_NO_WAY = "it does not reach the server that leads, or led"
_CONNECTIONS = "raise http_max_conns_per_client there, or have fewer clients on one machine"
_RATE = "it limits requests: see limits.request_limits and limits.rpc_rate there"
_DATACENTER = "check plugin.consul.datacenter"
_CREDENTIAL = "check plugin.consul.token"
_NO_CREDENTIAL = "set plugin.consul.token"
_BOOTSTRAP = "`consul acl bootstrap` makes the first token"
_GRANT = "the policy of the token has to grant"
_SESSIONS = f'{_GRANT} session "{SESSION_NODE}" {{ policy = "write" }}'
_NODE = f'{_GRANT} node "{SESSION_NODE}" {{ policy = "write" }}, or register that node yourself'
_KEYS = f'{_GRANT} key_prefix "<plugin.namespace>/" {{ policy = "write" }}'
_RIGHTS = "see the permissions to grant in kip30's page on Consul"
_BLOCKED = "http_config.block_endpoints there must not name /v1/kv, /v1/txn or /v1/session"
_ALLOW_WRITES_FROM = "http_config.allow_write_http_from there has to name this machine"
_VERSION = "is this Consul, version 1.14 or later?"

# The kinds are HTTP's statuses, None for all of them, and the constants above. The texts are those
# of Consul and of the Raft library below it (`ErrNotLeader`, `ErrLeadershipTransferInProgress`,
# `ErrEnqueueTimeout`), which say that a request did not get into the log.
_NEVER_DONE: tuple[Rule[int | None], ...] = (
    Rule(UNSENT, "", UnavailableError),
    Rule(429, "concurrent connections", UnavailableError, _CONNECTIONS),
    Rule(429, "", UnavailableError, _RATE),
    Rule(503, "rate limit exceeded", UnavailableError, _RATE),
    Rule(500, "No cluster leader", UnavailableError, NO_LEADER),
    Rule(500, "No known Consul servers", UnavailableError, "has this agent joined the cluster?"),
    Rule(500, "node is not the leader", UnavailableError),
    Rule(500, "leader not found in server lookup mapping", UnavailableError),
    Rule(500, "Not ready to serve consistent reads", UnavailableError),
    Rule(500, "leadership transfer in progress", UnavailableError),
    Rule(500, "timed out enqueuing operation", UnavailableError),
    Rule(500, "rpc error getting client", UnavailableError, _NO_WAY),
    Rule(500, "No path to datacenter", UnavailableError, _DATACENTER),
    Rule(500, "Remote DC has no server currently reachable", UnavailableError, _DATACENTER),
)
_REFUSED: tuple[Rule[int | None], ...] = (
    *_NEVER_DONE,
    Rule(UNTRUSTED, "", AuthenticationError),
    Rule(None, "Permission denied: anonymous token", AuthenticationError, _NO_CREDENTIAL),
    Rule(None, "lacks permission 'session:", AuthenticationError, _SESSIONS),
    Rule(None, "lacks permission 'node:", AuthenticationError, _NODE),
    Rule(None, "lacks permission 'key:", AuthenticationError, _KEYS),
    Rule(None, "Permission denied: not all", AuthenticationError, _KEYS),
    Rule(None, "Permission denied", AuthenticationError, _RIGHTS),
    Rule(None, "ACL system must be bootstrapped", AuthenticationError, _BOOTSTRAP),
    Rule(None, "ACL not found", AuthenticationError, _CREDENTIAL),
    Rule(400, "HTTP request to an HTTPS server", AuthenticationError, "set plugin.consul.tls=true"),
    Rule(401, "", AuthenticationError, _CREDENTIAL),
    Rule(403, "Endpoint is blocked", AuthenticationError, _BLOCKED),
    Rule(403, "Access is restricted", AuthenticationError, _ALLOW_WRITES_FROM),
    Rule(403, "", AuthenticationError, _RIGHTS),
    Rule(None, "Invalid Session TTL", TooShortError),
    Rule(500, "Missing node registration", NodeMissingError),
    Rule(400, "", StoreError),
    Rule(404, "", StoreError, _VERSION),
    Rule(405, "", StoreError, _VERSION),
    Rule(413, "", StoreError, "raise limits.kv_max_value_size and limits.txn_max_req_len there"),
)
_LOST = {NO_ANSWER, UNSENT, UNTRUSTED}
_CLOSED = {HUNG_UP, CUT_OFF}


def was_never_done(failure: Failure) -> bool:
    """Return whether it is safe to send any request to another server."""
    return _found(_NEVER_DONE, failure) is not None


def is_final(failure: Failure) -> bool:
    """Return whether the cluster has refused, so that a retry would not help."""
    refused = failure.status != UNTRUSTED and _found(_REFUSED, failure) is not None
    return refused and not was_never_done(failure)


def is_unauthorized(failure: Failure) -> bool:
    """Return whether the server refused the token, so that another one may help."""
    rule = _found(_REFUSED, failure) if failure.status > 0 else None
    return rule is not None and issubclass(rule.error, AuthenticationError)


def is_lost(failure: Failure) -> bool:
    """Return whether the server did not answer at all, or cannot in its present state.

    Another one may: so this holds for all that may be repeated, also if the server has too much to
    do.
    """
    if failure.status in _LOST or was_never_done(failure):
        return True
    return failure.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not is_final(failure)


def translate(failure: Failure, *, wrote: bool, server: str) -> Kip30Error:
    """Return kip30's error for *failure* of a request to *server*.

    Args:
        failure: How the request ended.
        wrote: Whether the request may change anything.
        server: The server that it was sent to.
    """
    if failure.status in _CLOSED:
        lost = wrote and failure.status == CUT_OFF
        return (OutcomeUnknownError if lost else ClosedError)("closed while it was under way")
    text = f"Consul at {server}: {_readable(failure)}"
    if failure.status == UNTRUSTED:
        return AuthenticationError(f"{text}: {_tls_advice(failure)}")
    earlier = failure.before and _found(_REFUSED, failure.before)
    if earlier is not None and earlier.advice:
        text += f": {earlier.advice}"
    return error_of(_found(_REFUSED, failure), text, wrote=wrote)


def _tls_advice(failure: Failure) -> str:
    advice = tls_advice(failure.said, prefix="plugin.consul.tls", addresses="plugin.consul.address")
    return advice or "check plugin.consul.tls.*"


def _readable(failure: Failure) -> str:
    """Return the message, unless it is empty, or an HTML page."""
    said = failure.said.strip().removesuffix(".")
    if not said or said.startswith("<"):
        return f"HTTP status {failure.status}"
    return said[:_MAX_MESSAGE]


def _found(rules: Iterable[Rule[int | None]], failure: Failure) -> Rule[int | None] | None:
    is_answer = failure.status > 0
    return first(rules, failure.said, failure.status, *([None] if is_answer else ()))
