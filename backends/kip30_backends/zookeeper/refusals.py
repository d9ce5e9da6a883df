"""What a ZooKeeper server says instead of doing what it was asked."""

from typing import ClassVar, Self

_UNKNOWN_SESSION = -12
WANTS_CREDENTIALS = -124
"""The server ends the session, because it demands SASL."""
_NOT_THE_REASON = {0, -2}


class Refused(Exception):  # noqa: N818  it is an answer
    """The server did not do it. *number* is that of the operation in a Multi that was at fault."""

    code: ClassVar[int] = 0

    def __init__(self, code: int, number: int = 0) -> None:
        """Remember the server's *code*."""
        super().__init__(f"{_MEANINGS.get(code, 'error')} ({code})")
        self.reason = code
        self.number = number

    @property
    def is_reason(self) -> bool:
        """Whether it is the reason for a Multi not being done, and not just a consequence."""
        return self.reason not in _NOT_THE_REASON

    def at(self, number: int) -> Self:
        """Return it with the *number* of the operation at fault."""
        self.number = number
        return self


class NoNode(Refused):
    """There is no such node."""

    code = -101


class BadVersion(Refused):
    """The node has another version."""

    code = -103


class NodeExists(Refused):
    """There is such a node already."""

    code = -110


class NoAuth(Refused):
    """These credentials do not allow it."""

    code = -102


class SessionExpired(Refused):
    """The session is over, or is about to be; nothing was done.

    A server without others says that it does not know the session, once it has forgotten it.
    """

    code = -112


class Unimplemented(Refused):
    """The server is too old to know the request."""

    code = -6


_MEANINGS = {
    -4: "connection lost",
    -6: "request not known to this server",
    -101: "no such node",
    -102: "not permitted",
    -103: "another version",
    -110: "node exists",
    SessionExpired.code: "session expired",
    _UNKNOWN_SESSION: "session not known",
    -114: "access control list refused",
    -115: "authentication failed",
    -118: "session moved",
    -119: "server is read-only",
    WANTS_CREDENTIALS: "server requires authentication",
    -125: "quota exceeded",
    -127: "throttled",
}
_KINDS = {
    one.code: one for one in (NoNode, BadVersion, NodeExists, NoAuth, SessionExpired, Unimplemented)
} | {_UNKNOWN_SESSION: SessionExpired}


def refusal(code: int) -> Refused:
    """Return what *code* means."""
    return _KINDS.get(code, Refused)(code)
