"""Conversion of errors of Cassandra and its driver to kip30's: one table of what is certain.

Errors that are not listed here are ambiguous: a write raises `OutcomeUnknownError`, a read
`UnavailableError`. That holds for ``Unavailable`` too: a coordinator whose first proposal
conflicted with another one may report it of its second.
"""

from typing import NamedTuple

from kip30.config.tls_failures import tls_advice
from kip30.driver.kit.error_table import Rule, error_of, first
from kip30.driver.kit.gate import CLOSED
from kip30.errors import (
    AuthenticationError,
    ClosedError,
    Kip30Error,
    StoreError,
    UnavailableError,
)

NEVER_SENT = "NeverSent"
"""The kind of a failure before anything left."""

LATE = "no answer in time"
"""The message of a failure that is only known by its timeout."""


class FailureAdvice(NamedTuple):
    """Advice for a *kind* of failure whose message has *part*; ``{keyspace}`` is replaced."""

    kind: str
    part: str
    text: str


_TLS = "SSLError"

_DELETIONS = (
    "more was deleted there than a read may pass (tombstone_failure_threshold in cassandra.yaml):"
    " kip30 makes fewer of these deletions, so try again"
)
_UNTRUSTED = "it must trust the authority that signed the certificate of plugin.cassandra.tls.cert"

# The first match counts, so an entry with a text comes before one with the kind alone.
_ALL = (
    FailureAdvice(
        NEVER_SENT,
        "reset by peer",
        "if it demands TLS, or another certificate, see plugin.cassandra.tls.*",
    ),
    FailureAdvice(NEVER_SENT, "", "does a node serve there? See plugin.cassandra.contact.points"),
    FailureAdvice(
        "AuthenticationFailed",
        "requires authentication",
        "set plugin.cassandra.user and plugin.cassandra.password",
    ),
    FailureAdvice(
        "AuthenticationFailed", "", "check plugin.cassandra.user and plugin.cassandra.password"
    ),
    FailureAdvice(
        _TLS,
        "EOF occurred",
        "it requires a certificate: set plugin.cassandra.tls.cert and plugin.cassandra.tls.key;"
        " if they are set, " + _UNTRUSTED,
    ),
    FailureAdvice(_TLS, "", "check plugin.cassandra.tls.*"),
    FailureAdvice(
        "Unauthorized",
        "no CREATE permission",
        "have an administrator make keyspace {keyspace} and its tables (`kip30 config --ddl`"
        " prints how), or grant the role CREATE ON ALL KEYSPACES",
    ),
    FailureAdvice("Unauthorized", "", "grant the role SELECT and MODIFY on keyspace {keyspace}"),
    FailureAdvice(
        "InvalidRequest",
        "Undefined column",
        "the tables are not those of this version of kip30: use another keyspace",
    ),
    FailureAdvice(
        "InvalidRequest",
        "unconfigured table",
        "make the tables of keyspace {keyspace} (`kip30 config --ddl` prints how), or set"
        " plugin.cassandra.create=true",
    ),
    FailureAdvice(
        "ConfigurationException", "", "check plugin.cassandra.replication, and its data centres"
    ),
    FailureAdvice(
        "Unavailable",
        "",
        "more nodes must be up to hold a quorum of the copies of keyspace {keyspace}:"
        " start them, or lower its replication",
    ),
    FailureAdvice(
        "ReadFailure",
        "READ_TOO_MANY_TOMBSTONES",
        _DELETIONS,
    ),
    FailureAdvice(
        "ReadFailure",
        "UNKNOWN from",
        "the log of that node has the reason. If it mentions tombstones, " + _DELETIONS,
    ),
    FailureAdvice(
        "ReadFailure",
        "INCOMPATIBLE_SCHEMA",
        "nodes do not agree on the tables: `nodetool describecluster` shows whether that passes",
    ),
)


def advice_on(kind: str, said: str) -> str:
    """Return advice for a failure of *kind* with the message *said*; empty if there is none."""
    if kind == _TLS and (cause := _tls_cause(said)):
        return cause
    for advice in _ALL:
        if advice.kind == kind and advice.part in said:
            return advice.text
    return ""


def _tls_cause(said: str) -> str:
    return tls_advice(
        said,
        prefix="plugin.cassandra.tls",
        addresses="plugin.cassandra.contact.points, or plugin.cassandra.address.map,",
    )


_OVERWHELMED = ("READ_TOO_MANY_TOMBSTONES", "UNKNOWN from")


def closed() -> ClosedError:
    """Return the error of a call after the backend was closed."""
    return ClosedError(CLOSED)


class DeletionsError(StoreError):
    """A read found more deleted rows than a node reads past. It fails until these are folded."""


class Failure(NamedTuple):
    """Failure of a request: the name of the driver's error, and its message."""

    kind: str
    said: str


_MISSING = (
    Rule("InvalidRequest", "unconfigured table", StoreError),
    Rule("InvalidRequest", "does not exist", StoreError),
    Rule("InvalidRequest", "No keyspace", StoreError),
)
_REFUSED = (
    Rule(NEVER_SENT, "", UnavailableError),
    Rule("AuthenticationFailed", "", AuthenticationError),
    Rule("SSLError", "", AuthenticationError),
    Rule("Unauthorized", "", AuthenticationError),
    *_MISSING,
    Rule("InvalidRequest", "", StoreError),
    Rule("SyntaxException", "", StoreError),
    Rule("ConfigurationException", "", StoreError),
)


def met_deletions(failure: Failure) -> bool:
    """Return whether deletions did or may have failed a read: a serial one does not report it."""
    return failure.kind == "ReadFailure" and any(one in failure.said for one in _OVERWHELMED)


def is_missing(failure: Failure) -> bool:
    """Return whether the tables are missing, so that nothing was done."""
    return first(_MISSING, failure.said, failure.kind) is not None


def was_never_sent(failure: Failure) -> bool:
    """Return whether it is safe to send any request to another node."""
    return failure.kind == NEVER_SENT


def is_refused(failure: Failure) -> bool:
    """Return whether nothing was done, and a retry would not help."""
    if was_never_sent(failure):
        return False
    return first(_REFUSED, failure.said, failure.kind) is not None


def translate(failure: Failure, *, wrote: bool, subject: str, server: str) -> Kip30Error:
    """Return kip30's error for *failure* of a request to *server*.

    Args:
        failure: How the request ended.
        wrote: Whether the request may change anything.
        subject: The keyspace of the request.
        server: The node that it was sent to.
    """
    rule = first(_REFUSED, failure.said, failure.kind)
    text = f"Cassandra at {server}: {failure.said or failure.kind}{_hint(failure, subject)}"
    return error_of(rule, text, wrote=wrote)


def _hint(failure: Failure, subject: str) -> str:
    advice = advice_on(*failure)
    return f": {advice.format(keyspace=subject)}" if advice else ""
