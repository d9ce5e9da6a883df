"""From what HTTP and Consul say to kip30's errors: one table of what is certain.

Whatever the table does not name may have been done: a write's outcome is then unknown, and a read
was not to be had.
"""

from http import HTTPStatus
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

NO_ANSWER = 0
UNSENT = -1
UNTRUSTED = -2
HUNG_UP = -3


class Failure(NamedTuple):
    """How a request ended: HTTP's status, or one of the constants above, and what was said."""

    status: int
    said: str


class TroubleError(Exception):
    """A request without an answer of use. It never leaves this package."""

    def __init__(self, failure: Failure) -> None:
        """Tell of *failure*."""
        super().__init__(failure.said)
        self.failure = failure


class TooShortError(StoreError):
    """The servers grant no session that ends so soon. Nothing was done."""


class Rule(NamedTuple):
    """A failure that tells for certain that nothing was done: its status, and a part of its text.

    A status of None stands for all that a server may answer.
    """

    status: int | None
    part: str
    error: type[DefiniteError]
    advice: str = ""


_NEVER_DONE = (
    Rule(UNSENT, "", UnavailableError),
    Rule(429, "", UnavailableError),
    Rule(500, "No cluster leader", UnavailableError),
    Rule(500, "node is not the leader", UnavailableError),
    Rule(500, "leader not found in server lookup mapping", UnavailableError),
    Rule(500, "Not ready to serve consistent reads", UnavailableError),
    Rule(500, "leadership transfer in progress", UnavailableError),
    Rule(500, "timed out enqueuing operation", UnavailableError),
    Rule(500, "rpc error getting client", UnavailableError),
    Rule(500, "No path to datacenter", UnavailableError, "check plugin.consul.datacenter"),
)
_RIGHTS = "see the permissions to grant in kip30's page on Consul"
_REFUSED = (
    *_NEVER_DONE,
    Rule(UNTRUSTED, "", AuthenticationError, "check plugin.consul.tls.*"),
    Rule(None, "Permission denied", AuthenticationError, _RIGHTS),
    Rule(None, "ACL not found", AuthenticationError, "check plugin.consul.token"),
    Rule(400, "HTTP request to an HTTPS server", AuthenticationError, "set plugin.consul.tls=true"),
    Rule(401, "", AuthenticationError, "check plugin.consul.token"),
    Rule(403, "", AuthenticationError, _RIGHTS),
    Rule(None, "Invalid Session TTL", TooShortError),
    Rule(400, "", StoreError),
    Rule(404, "", StoreError, "is this Consul, version 1.14 or later?"),
    Rule(405, "", StoreError, "is this Consul, version 1.14 or later?"),
    Rule(413, "", StoreError),
)
_LOST = {NO_ANSWER, UNSENT, UNTRUSTED}


def was_never_done(failure: Failure) -> bool:
    """Say whether another server may be asked the same, whatever it is."""
    return _found(_NEVER_DONE, failure) is not None


def is_final(failure: Failure) -> bool:
    """Say whether the cluster has refused, so that it is of no use to ask again."""
    refused = failure.status != UNTRUSTED and _found(_REFUSED, failure) is not None
    return refused and not was_never_done(failure)


def is_lost(failure: Failure) -> bool:
    """Say whether the server did not answer at all, or cannot while it is as it is."""
    if failure.status in _LOST:
        return True
    return failure.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not is_final(failure)


def translate(failure: Failure, *, wrote: bool, server: str) -> Kip30Error:
    """Return kip30's error for *failure* of a request to *server*.

    Args:
        failure: How the request ended.
        wrote: Whether the request would have changed anything.
        server: Where it went.
    """
    if failure.status == HUNG_UP:
        return ClosedError("closed while the operation was under way")
    rule = _found(_REFUSED, failure)
    told = f"Consul at {server}: {failure.said.strip() or failure.status}"
    if rule is None:
        return OutcomeUnknownError(told) if wrote else UnavailableError(told)
    return rule.error(f"{told}: {rule.advice}" if rule.advice else told)


def _found(rules: tuple[Rule, ...], failure: Failure) -> Rule | None:
    for rule in rules:
        fits = failure.status > 0 if rule.status is None else rule.status == failure.status
        if fits and rule.part in failure.said:
            return rule
    return None
