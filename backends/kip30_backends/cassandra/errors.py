"""From what Cassandra and its driver say to kip30's errors: one table of what is certain.

Whatever the table does not name may have been done, or may still be: a write's outcome is then
unknown, and a read was not to be had. That holds for ``Unavailable`` too, since a coordinator
whose first proposal met another one may say it of its second.
"""

from typing import NamedTuple

from kip30.errors import (
    AuthenticationError,
    ClosedError,
    DefiniteError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)
from kip30_backends.cassandra.advice import NEVER_SENT, advice_on

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
    """Say whether another node may be asked the same, whatever it is."""
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
