"""Conversion of errors of ZooKeeper and kazoo to kip30's: one table of what is certain.

A lost connection is ambiguous: a write raises `OutcomeUnknownError`, a read `UnavailableError`. An
answer with a number that is not listed here is a refusal: `StoreError`.
"""

import ssl
from typing import ClassVar, Self

from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    KazooException,
    SessionClosedRequireSaslError,
)

from kip30.config.tls_failures import tls_advice
from kip30.driver.kit.gate import CLOSED
from kip30.errors import (
    AuthenticationError,
    ClosedError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)

_UNKNOWN_SESSION = -12
WANTS_CREDENTIALS = -124
"""The server ends the session, because it demands SASL."""
_NOT_THE_REASON = {0, -2}


class RequestRefused(Exception):  # noqa: N818  it is an answer
    """The server refused. *number* is that of the operation in a Multi that caused it."""

    code: ClassVar[int] = 0

    def __init__(self, code: int, number: int = 0) -> None:
        """Remember the server's *code*."""
        super().__init__(f"{_MEANINGS.get(code, 'error')} ({code})")
        self.reason = code
        self.number = number

    @property
    def is_reason(self) -> bool:
        """True if it is the cause of a refused Multi, and not just a consequence."""
        return self.reason not in _NOT_THE_REASON

    def at(self, number: int) -> Self:
        """Return it with the *number* of the operation that caused it."""
        self.number = number
        return self


class NoNode(RequestRefused):
    """There is no such node."""

    code = -101


class BadVersion(RequestRefused):
    """The node has another version."""

    code = -103


class NodeExists(RequestRefused):
    """The node exists already."""

    code = -110


class NoAuth(RequestRefused):
    """The credentials do not permit it."""

    code = -102


class SessionExpired(RequestRefused):
    """The session has ended, or is about to; nothing was done.

    A server without others says that it does not know the session, once it has forgotten it.
    """

    code = -112


class LocalSessionError(StoreError):
    """The session is known to one server alone, and may hold nothing. Nothing was done."""


class Unimplemented(RequestRefused):
    """The server is too old to know the request."""

    code = -6


_LOCAL_SESSION = -120
_MEANINGS = {
    -1: "system error",
    -2: "inconsistency of the servers' state",
    -3: "inconsistency of the servers' data",
    -4: "connection lost",
    -5: "request or answer not understood",
    -6: "request not known to this server",
    -7: "operation timed out",
    -8: "bad arguments",
    -9: "invalid state",
    -101: "no such node",
    -102: "not permitted",
    -103: "another version",
    -108: "an ephemeral node has no children",
    -110: "node exists",
    -111: "node is not empty",
    SessionExpired.code: "session expired",
    _UNKNOWN_SESSION: "session not known",
    -114: "access control list refused",
    -115: "authentication failed",
    -116: "session is closing",
    -118: "session moved",
    -119: "server is read-only",
    _LOCAL_SESSION: "ephemeral node of a local session",
    -121: "no such watch",
    -122: "request timed out",
    WANTS_CREDENTIALS: "server requires authentication",
    -125: "quota exceeded",
    -127: "throttled",
}
_KINDS = {
    one.code: one for one in (NoNode, BadVersion, NodeExists, NoAuth, SessionExpired, Unimplemented)
} | {_UNKNOWN_SESSION: SessionExpired}


def refusal(code: int) -> RequestRefused:
    """Return the refusal that *code* means."""
    return _KINDS.get(code, RequestRefused)(code)


# By number, see `KeeperException.Code`. A lost connection and two kinds of timeouts in the server
# are ambiguous: the leader may have accepted the request, and do it later. So is -5: a server also
# sends it if it has failed to answer a request that it has done.
_NOT_PERMITTED = {-102, -114, -115, -124}
_TRY_LATER = {-4, -7, -112, -118, -119, -122, -127}
_FULL = -125
_UNDECIDED = {-4, -5, -7, -122}


def translate(error: BaseException, *, writes: bool) -> Kip30Error:
    """Return kip30's error for *error*; *writes* says that it ended a write that was sent."""
    if isinstance(error, Kip30Error):
        return error
    translated = _of_refusal(error, writes=writes) if isinstance(error, RequestRefused) else None
    translated = translated or _of_connection(error, writes=writes)
    translated.__cause__ = error
    return translated


def why_unreachable(error: BaseException | None, hosts: str) -> Kip30Error:
    """Return kip30's error for a connection to *hosts* that failed."""
    if isinstance(error, AuthFailedError | SessionClosedRequireSaslError):
        text = f"ZooKeeper at {hosts} rejects the credentials: check plugin.zookeeper.sasl.*"
        translated: Kip30Error = AuthenticationError(text)
    elif isinstance(error, ssl.SSLCertVerificationError):
        translated = AuthenticationError(
            f"the certificate of ZooKeeper at {hosts} is not trusted"
            f" ({error.verify_message}): {_tls_advice(error)}"
        )
    elif isinstance(error, ssl.SSLError):
        translated = UnavailableError(
            f"no TLS with ZooKeeper at {hosts} ({error.reason or error}): {_tls_advice(error)}"
        )
    else:
        reason = f" ({error})" if error is not None and str(error) else ""
        translated = UnavailableError(f"ZooKeeper at {hosts} cannot be reached{reason}")
    translated.__cause__ = error
    return translated


def _tls_advice(error: ssl.SSLError) -> str:
    advice = tls_advice(
        f"{error.reason} {error}",
        prefix="plugin.zookeeper.tls",
        addresses="zookeeper.connect",
        certificate_word="certificate",
    )
    return advice or "check plugin.zookeeper.tls.*, and that the port is the secure one"


def _of_refusal(error: RequestRefused, *, writes: bool) -> Kip30Error | None:
    if error.reason in _NOT_PERMITTED:
        return AuthenticationError(
            f"ZooKeeper does not permit it: {error}; check the credentials and the access lists"
        )
    if writes and error.reason in _UNDECIDED:
        return OutcomeUnknownError(f"ZooKeeper gave up: {error}")
    if error.reason in _TRY_LATER:
        return UnavailableError(f"ZooKeeper did not take it: {error}")
    if error.reason == _LOCAL_SESSION:
        return LocalSessionError(
            f"ZooKeeper refused it: {error}: it can hold no membership or leadership; set"
            " localSessionsUpgradingEnabled=true on all servers, or localSessionsEnabled=false"
        )
    if error.reason == _FULL:
        return StoreError("ZooKeeper's quota for this tree is used up: nothing was done")
    return StoreError(f"ZooKeeper refused it: {error}")


def _of_connection(error: BaseException, *, writes: bool) -> Kip30Error:
    if isinstance(error, AuthFailedError):
        return AuthenticationError("ZooKeeper rejects the credentials")
    if writes:
        return OutcomeUnknownError(f"the connection to ZooKeeper was lost: {_name(error)}")
    if isinstance(error, ConnectionClosedError):
        return ClosedError(CLOSED)
    return UnavailableError(f"the connection to ZooKeeper was lost: {_name(error)}")


def _name(error: BaseException) -> str:
    return type(error).__name__ if isinstance(error, KazooException) else str(error)
