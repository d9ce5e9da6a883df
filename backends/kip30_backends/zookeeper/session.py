"""A session: what the servers know it by, and how long it holds."""

from typing import NamedTuple

from typing_extensions import override

from kip30.lease import Lease


class Identity(NamedTuple):
    """What a session can be taken up again with. The password is shown nowhere."""

    ident: int
    password: bytes

    @override
    def __repr__(self) -> str:
        """Show the session's id alone."""
        return f"<session {self.ident:#x}>"


class Session(NamedTuple):
    """One life of a backend's claims."""

    identity: Identity
    lease: Lease

    @property
    def ident(self) -> int:
        """The session's number."""
        return self.identity.ident
