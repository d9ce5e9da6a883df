"""How the stores differ in what the core must cope with, for the model of a store."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class StoreDialect(NamedTuple):
    """What a modelled store does in its own way.

    Attributes:
        granted_seconds: The session timeout that it grants where a client has not asked for one;
            None if it grants what the client would like.
        delay_seconds: How long it grants a service to no one after it has ended the session of the
            leader: Consul's lock-delay. It notifies no one when that is over.
        poll_seconds: How often its clients read what they watch; 0 if it notifies them.
        lengthens_sessions: Whether every session lasts its whole time again after a restart.
    """

    granted_seconds: float | None = None
    delay_seconds: float = 0.0
    poll_seconds: float = 0.0
    lengthens_sessions: bool = True


PLAIN: Final = StoreDialect()
"""That of a store without any peculiarity."""

DIALECTS: Final[Mapping[str, StoreDialect]] = {
    "etcd": PLAIN,
    "zookeeper": StoreDialect(granted_seconds=4.0),
    "consul": StoreDialect(delay_seconds=1.0, poll_seconds=0.25),
    "cassandra": StoreDialect(poll_seconds=0.5, lengthens_sessions=False),
    "embedded": StoreDialect(poll_seconds=0.02, lengthens_sessions=False),
}
"""By the store that does the same: what each is known for, not all that it does."""
