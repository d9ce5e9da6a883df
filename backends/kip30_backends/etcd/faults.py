"""What a cluster does to its clients, done on purpose: for the conformance suite alone."""

from kip30.driver.key_layout import Paths
from kip30_backends.etcd.client import messages
from kip30_backends.etcd.client.channel import TXN
from kip30_backends.etcd.request import Ask, Calls, acknowledged
from kip30_backends.etcd.session import Sessions
from kip30_backends.etcd.snapshots import leader_key


class Faults:
    """The faults of one backend that need to know its store."""

    def __init__(self, paths: Paths, calls: Calls, sessions: Sessions) -> None:
        """Be able to do harm below *paths*."""
        self._paths = paths
        self._calls = calls
        self._sessions = sessions

    def expire_session(self) -> None:
        """End the lease in the store, as if it had run out there."""
        self._sessions.expire()

    def delete_leader(self, service: str) -> None:
        """Remove the record of who leads *service*, behind everybody's back."""
        self._delete(leader_key(self._paths, service))

    def delete_member(self, group: str, member_id: str) -> None:
        """Remove the record of a member of *group*, behind everybody's back."""
        self._delete(self._paths.member(group, member_id).encode())

    def _delete(self, key: bytes) -> None:
        request = messages.txn([], [messages.delete(key)])
        self._calls.send(Ask(TXN, request, acknowledged, writes=True)).result()
