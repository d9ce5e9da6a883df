"""Differences of the stores that the core must cope with, for the model of a store."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class StoreDialect(NamedTuple):
    """The peculiarities of a modelled store.

    Attributes:
        granted_seconds: The session timeout that it grants where a client has not asked for one;
            None if it grants what the client would like.
        delay_seconds: How long it refuses all claims of a service after it has ended the session of
            the leader: Consul's lock-delay. It sends no notification when that is over.
        poll_seconds: How often its clients read what they watch; 0 if it notifies them.
        lengthens_sessions: Whether every session lasts its whole time again after a restart.
    """

    granted_seconds: float | None = None
    delay_seconds: float = 0.0
    poll_seconds: float = 0.0
    lengthens_sessions: bool = True


PLAIN: Final = StoreDialect()
"""The dialect of a store without any peculiarity."""

DIALECTS: Final[Mapping[str, StoreDialect]] = {
    "etcd": PLAIN,
    "zookeeper": StoreDialect(granted_seconds=4.0),
    "consul": StoreDialect(delay_seconds=1.0, poll_seconds=0.25),
    "cassandra": StoreDialect(poll_seconds=0.5, lengthens_sessions=False),
    "embedded": StoreDialect(poll_seconds=0.02, lengthens_sessions=False),
}
"""The dialects by the names of real stores: main peculiarities, not all behaviour."""
