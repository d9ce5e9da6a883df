"""Conversion of errors of gRPC and etcd to kip30's: one table of what is certain.

Errors that are not listed here are ambiguous: a write raises `OutcomeUnknownError`, a read
`UnavailableError`.
"""

from typing import NamedTuple

from kip30.config.tls_failures import tls_advice
from kip30.driver.kit.error_table import Rule, error_of, first
from kip30.errors import (
    AuthenticationError,
    ClosedError,
    DefiniteError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)


class LeaseGoneError(DefiniteError):
    """The store knows no such lease. Nothing was done."""


class NotDemandedError(DefiniteError):
    """The store has no users, so it grants no tokens. Nothing was done."""


class CompactedError(DefiniteError):
    """The store does not have the requested revision, or no longer. Nothing was done."""


class SpaceExceededError(OutcomeUnknownError):
    """The space quota is exceeded. A write may have been done, but is under way no longer."""


class Failure(NamedTuple):
    """Failure of a call: the name of gRPC's status code, and the message."""

    code: str
    said: str


_LEARNER = "name voting members in plugin.etcd.endpoints, or promote it"
_FULL = "compact and defragment etcd, then disarm its alarm"
_TOO_MANY = "it is behind with what it has accepted: is its disk fast enough?"

# A server or proxy writes these about a call that it has given up; else it was this client.
_CANCELLED_THERE = ("etcdserver", "context canceled")

# The kinds are names of gRPC's status codes.
_NEVER_SENT = (
    Rule("UNAVAILABLE", "failed to connect", UnavailableError),
    Rule("UNAVAILABLE", "DNS resolution failed", UnavailableError),
    Rule("UNAVAILABLE", "etcdserver: no leader", UnavailableError),
    Rule("UNAVAILABLE", "etcdserver: not capable", UnavailableError),
    Rule("FAILED_PRECONDITION", "not supported for learner", UnavailableError, _LEARNER),
    Rule("UNAVAILABLE", "not supported for learner", UnavailableError, _LEARNER),  # up to 3.5
    Rule("RESOURCE_EXHAUSTED", "too many requests", UnavailableError, _TOO_MANY),
)
_STALE_TOKEN = (
    Rule("UNAUTHENTICATED", "", AuthenticationError, "the token was refused"),
    Rule("INVALID_ARGUMENT", "auth store is old", AuthenticationError, "try again"),
    Rule(
        "INVALID_ARGUMENT",
        "user name is empty",
        AuthenticationError,
        "set plugin.etcd.user and plugin.etcd.password",
    ),
)
_REFUSED = (
    Rule("UNAVAILABLE", "CERTIFICATE_VERIFY_FAILED", AuthenticationError),
    Rule("UNAVAILABLE", "andshake", AuthenticationError),  # gRPC writes both cases of the letter
    Rule("UNAVAILABLE", "certificate", AuthenticationError),
    *_NEVER_SENT,
    *_STALE_TOKEN,
    Rule("PERMISSION_DENIED", "", AuthenticationError),
    Rule(
        "INVALID_ARGUMENT",
        "authentication failed",
        AuthenticationError,
        "check plugin.etcd.user and plugin.etcd.password",
    ),
    Rule("FAILED_PRECONDITION", "authentication is not enabled", NotDemandedError),
    Rule("NOT_FOUND", "lease not found", LeaseGoneError),
    Rule("OUT_OF_RANGE", "compacted", CompactedError),
    # Every read covers all acknowledged writes, so this store was restored from a backup.
    Rule("OUT_OF_RANGE", "future revision", CompactedError),
    # etcd checks the quota once more when it applies a transaction: it applies it nevertheless.
    Rule("RESOURCE_EXHAUSTED", "space exceeded", StoreError, _FULL, SpaceExceededError),
    # This client refuses an answer; a server writes a small letter, and refuses a request.
    Rule("RESOURCE_EXHAUSTED", "Received message larger", StoreError, "", OutcomeUnknownError),
    Rule("RESOURCE_EXHAUSTED", "larger than max", StoreError),
    Rule("INVALID_ARGUMENT", "request is too large", StoreError),
    Rule("INVALID_ARGUMENT", "", StoreError),
    Rule("UNIMPLEMENTED", "", StoreError, "is this etcd, version 3.4 or later?"),
    Rule("DATA_LOSS", "", StoreError),
)


class Access(NamedTuple):
    """The prefix of all keys that are used, and the permission that is needed on them."""

    prefix: str
    permission: str = "readwrite"


_NEIGHBOUR = (
    "or remove what another client has put on lease {:x}: etcd refuses a key on a lease with a key"
    " that the user may not write (see etcdctl lease timetolive --keys)"
)


def was_never_sent(failure: Failure) -> bool:
    """Return whether it is safe to send any request to another server."""
    return first(_NEVER_SENT, failure.said, failure.code) is not None


def is_stale_token(failure: Failure) -> bool:
    """Return whether a new token is needed."""
    return first(_STALE_TOKEN, failure.said, failure.code) is not None


def translate(
    failure: Failure,
    *,
    wrote: bool,
    access: Access,
    server: str,
    lease: int = 0,
) -> Kip30Error:
    """Return kip30's error for *failure* of a call to *server*.

    Args:
        failure: How the call ended.
        wrote: Whether the call may change anything.
        access: The access needed, for a user that lacks a permission.
        server: The server that it was sent to.
        lease: The lease to which the call would have attached keys.
    """
    if failure.code == "CANCELLED" and not failure.said.startswith(_CANCELLED_THERE):
        closed = "closed while the operation was under way"
        return OutcomeUnknownError(closed) if wrote else ClosedError(closed)
    text = f"etcd at {server}: {failure.said or failure.code}"
    if failure.code == "PERMISSION_DENIED":
        keys = f"the prefix {access.prefix}" if access.prefix else "all keys"
        needed = f"{access.permission} on {keys}"
        other = f", {_NEIGHBOUR.format(lease)}" if lease else ""
        return AuthenticationError(f"{text}: grant the user {needed}{other}")
    rule = first(_REFUSED, failure.said, failure.code)
    return error_of(rule, text, wrote=wrote, advice=_tls_advice(failure))


def _tls_advice(failure: Failure) -> str:
    if failure.code != "UNAVAILABLE":
        return ""
    return tls_advice(failure.said, prefix="plugin.etcd.tls", addresses="plugin.etcd.endpoints")
