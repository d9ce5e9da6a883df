"""What befalls a session or a leader from outside, done on purpose: for tests."""

from kip30_backends.zookeeper.client.protocol import Delete
from kip30_backends.zookeeper.errors import NoNode
from kip30_backends.zookeeper.request import Ask, Outbox, Steps
from kip30_backends.zookeeper.session import Sessions
from kip30_backends.zookeeper.tree import Tree


class Faults:
    """The faults of one backend."""

    def __init__(self, sessions: Sessions, outbox: Outbox, tree: Tree) -> None:
        """Strike *sessions* and *tree*."""
        self._sessions = sessions
        self._outbox = outbox
        self._tree = tree

    def expire_session(self) -> None:
        """Close this client's session on the server, over another connection.

        Raises:
            UnavailableError: The server did not say in time that it is closed.
        """
        line = self._sessions.line
        if line is None or line.session is None:
            return
        self._sessions.bury(line.session.identity)

    def delete_leader(self, service: str) -> None:
        """Remove the record of who leads *service*, behind everybody's back."""
        self._outbox.start(_deleted(self._tree.leader(service))).result()

    def delete_member(self, group: str, member_id: str) -> None:
        """Remove the record of a member of *group*, behind everybody's back."""
        self._outbox.start(_deleted(self._tree.paths.member(group, member_id))).result()


def _deleted(path: str) -> Steps[None]:
    answer = yield Ask((Delete(path),), writes=True)
    try:
        answer.only()
    except NoNode:
        return
