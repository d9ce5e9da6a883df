"""A session: what the servers know it by, and how long it holds."""

from collections.abc import Collection
from typing import NamedTuple

from typing_extensions import override

from kip30.driver.lease import Lease


class Identity(NamedTuple):
    """What a session can be taken up again with. The password is shown nowhere."""

    ident: int
    password: bytes

    @override
    def __repr__(self) -> str:
        """Show the session's id alone."""
        return f"<session {self.ident:#x}>"


class Session(NamedTuple):
    """One life of a backend's claims.

    Attributes:
        identity: What the servers know it by.
        lease: How long it holds.
        former: The numbers of this backend's last sessions, which have all ended for this client.
            Servers may keep one for its whole timeout all the same: one that was their leader may
            call it expired, and be replaced before that is decided.
    """

    identity: Identity
    lease: Lease
    former: Collection[int]

    @property
    def ident(self) -> int:
        """The session's number."""
        return self.identity.ident
