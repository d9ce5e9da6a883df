"""What a cluster does to its clients, done on purpose: for the conformance suite alone."""

from kip30.driver.kit.following import all_of
from kip30_backends.cassandra.claims import Claims
from kip30_backends.cassandra.client.library import Row
from kip30_backends.cassandra.request import Answer, Ask, Calls, acknowledged


class Faults:
    """The faults of one backend that need to know its store."""

    def __init__(self, calls: Calls, claims: Claims) -> None:
        """Be able to do harm to the tables."""
        self._calls = calls
        self._claims = claims

    def expire_session(self) -> None:
        """Delete all that is held, as if it had expired, without notifying this client."""
        all_of([self._claims.delete(one) for one in self._claims.sessions.held()]).result()

    def delete_leader(self, service: str) -> None:
        """Remove the record of who leads *service*, behind everybody's back."""
        statements, root = self._calls.statements, self._calls.root
        read = statements.bind("read_leaders", root, service)
        for row in self._calls.send(Ask(read, _rows)).result():
            leave = statements.bind("leave_seat", root, service, row["nonce"])
            self._calls.send(Ask(leave, acknowledged, writes=True)).result()

    def delete_member(self, group: str, member_id: str) -> None:
        """Remove the record of a member of *group*, behind everybody's back."""
        statements, root = self._calls.statements, self._calls.root
        read = statements.bind("read_member", root, group, member_id)
        for row in self._calls.send(Ask(read, _rows)).result():
            delete = statements.bind("delete_member", root, group, member_id, row["nonce"])
            self._calls.send(Ask(delete, acknowledged, writes=True)).result()


def _rows(answer: Answer) -> list[Row]:
    return [row for row in answer.rows if row["nonce"] is not None]
