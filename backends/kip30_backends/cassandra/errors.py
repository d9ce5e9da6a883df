"""From what Cassandra and its driver say to kip30's errors, and what an operator can do.

Errors that are not listed here are ambiguous: a write raises `OutcomeUnknownError`, a read
`UnavailableError`. That holds for ``Unavailable`` too, because a coordinator whose first proposal
met another one may say it of its second.
"""

from typing import NamedTuple

from kip30.config.tls_failures import tls_advice
from kip30.errors import (
    AuthenticationError,
    ClosedError,
    DefiniteError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)

NEVER_SENT = "NeverSent"
"""The kind of a failure before anything left."""


class Advice(NamedTuple):
    """What helps, where *kind* of failure says *part*; ``{keyspace}`` stands for its name."""

    kind: str
    part: str
    text: str


_TLS = "SSLError"

_DELETIONS = (
    "more was deleted there than a read may pass (tombstone_failure_threshold in cassandra.yaml):"
    " kip30 makes fewer of these deletions, so try again"
)
_UNTRUSTED = "it must trust the authority that signed the certificate of plugin.cassandra.tls.cert"

_ALL = (
    Advice(
        NEVER_SENT,
        "reset by peer",
        "if it demands TLS, or another certificate, see plugin.cassandra.tls.*",
    ),
    Advice(NEVER_SENT, "", "does a node serve there? See plugin.cassandra.contact.points"),
    Advice(
        "AuthenticationFailed",
        "requires authentication",
        "set plugin.cassandra.user and plugin.cassandra.password",
    ),
    Advice("AuthenticationFailed", "", "check plugin.cassandra.user and plugin.cassandra.password"),
    Advice(
        _TLS,
        "EOF occurred",
        "it wants to see a certificate: set plugin.cassandra.tls.cert and plugin.cassandra.tls.key;"
        " if they are set, " + _UNTRUSTED,
    ),
    Advice(_TLS, "", "check plugin.cassandra.tls.*"),
    Advice(
        "Unauthorized",
        "no CREATE permission",
        "have an administrator make keyspace {keyspace} and its tables (`kip30 config --ddl`"
        " prints how), or grant the role CREATE ON ALL KEYSPACES",
    ),
    Advice("Unauthorized", "", "grant the role SELECT and MODIFY on keyspace {keyspace}"),
    Advice(
        "InvalidRequest",
        "Undefined column",
        "the tables are not those of this version of kip30: use another keyspace",
    ),
    Advice(
        "InvalidRequest",
        "unconfigured table",
        "make the tables of keyspace {keyspace} (`kip30 config --ddl` prints how), or set"
        " plugin.cassandra.create=true",
    ),
    Advice(
        "ConfigurationException", "", "check plugin.cassandra.replication, and its data centres"
    ),
    Advice(
        "Unavailable",
        "",
        "more nodes must be up to hold a quorum of the copies of keyspace {keyspace}:"
        " start them, or lower its replication",
    ),
    Advice(
        "ReadFailure",
        "READ_TOO_MANY_TOMBSTONES",
        _DELETIONS,
    ),
    Advice(
        "ReadFailure",
        "UNKNOWN from",
        "the log of that node has the reason. If it tells of tombstones, " + _DELETIONS,
    ),
    Advice(
        "ReadFailure",
        "INCOMPATIBLE_SCHEMA",
        "nodes do not agree on the tables: `nodetool describecluster` shows whether that passes",
    ),
)


def advice_on(kind: str, said: str) -> str:
    """Return what helps against a failure of *kind* that *said* so; empty if nothing is known."""
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
    """Return the error for what comes too late."""
    return ClosedError("the backend is closed")


class DeletionsError(StoreError):
    """A read met more deleted rows than a node reads past. Until these are folded it fails."""


class Failure(NamedTuple):
    """How a request ended: the name of the driver's error, and what it said."""

    kind: str
    said: str


class Rule(NamedTuple):
    """A failure that tells for certain that nothing was done: its kind, and a part of its text."""

    kind: str
    part: str
    error: type[DefiniteError]


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
    """Say whether a read failed because of deletions, or may have: a serial one does not tell."""
    return failure.kind == "ReadFailure" and any(one in failure.said for one in _OVERWHELMED)


def is_missing(failure: Failure) -> bool:
    """Say whether the tables are not there, so that nothing was done."""
    return _found(_MISSING, failure) is not None


def was_never_sent(failure: Failure) -> bool:
    """Say whether any request may be sent to another node."""
    return failure.kind == NEVER_SENT


def is_refused(failure: Failure) -> bool:
    """Say whether nothing was done, and nothing else would come of asking again."""
    return not was_never_sent(failure) and _found(_REFUSED, failure) is not None


def translate(failure: Failure, *, wrote: bool, subject: str, server: str) -> Kip30Error:
    """Return kip30's error for *failure* of a request to *server*.

    Args:
        failure: How the request ended.
        wrote: Whether it would have changed anything.
        subject: The keyspace it was about.
        server: Where it went.
    """
    rule = _found(_REFUSED, failure)
    told = f"Cassandra at {server}: {failure.said or failure.kind}{_hint(failure, subject)}"
    if rule is None:
        return OutcomeUnknownError(told) if wrote else UnavailableError(told)
    return rule.error(told)


def _hint(failure: Failure, subject: str) -> str:
    advice = advice_on(*failure)
    return f": {advice.format(keyspace=subject)}" if advice else ""


def _found(rules: tuple[Rule, ...], failure: Failure) -> Rule | None:
    for rule in rules:
        if rule.kind == failure.kind and rule.part in failure.said:
            return rule
    return None
