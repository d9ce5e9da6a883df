"""Reading a group of 100 members with their data, who all belong to another process."""

from contextlib import closing
from itertools import repeat
from pathlib import Path

from benchmarks.library import VALUE, Operation, Prepared
from benchmarks.processes import Child, role
from benchmarks.raw import connect
from benchmarks.report.figure import Figure
from benchmarks.rounds import ratio
from benchmarks.statements import Trace, differences
from benchmarks.store_address import EMBEDDED, StoreAddress, scratch

MEMBERS = 100
GROUP = "workers"

_PLACE = (1, GROUP.encode())
_HOLDERS = """
SELECT DISTINCT session.id, boot, deadline FROM member JOIN session ON session.id = session
WHERE root = ? AND scope = ?
"""
_REV = "SELECT max(rev) FROM change"
_MEMBERS = "SELECT id, born, nonce, data FROM member WHERE root = ? AND scope = ?"


class Members:
    """The process that all members of the group in *directory* belong to."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: Child | None = None

    def join(self, sessions: int) -> None:
        """Make them join in a number of *sessions*, unless they have."""
        if self._process is None:
            self._process = role(
                "members",
                StoreAddress(EMBEDDED, str(self._directory)),
                GROUP,
                MEMBERS,
                sessions,
                VALUE,
            )
            self._process.line()

    def close(self) -> None:
        if self._process is not None:
            self._process.end()


class LibraryGroup:
    """`GroupMembership.membership`, of members in one session or each in its own."""

    def __init__(self, directory: Path) -> None:
        self._members = Members(directory)
        self._locator = StoreAddress(EMBEDDED, str(directory)).open()
        self._membership = self._locator.group_membership(GROUP)

    def group(self, loops: int) -> Prepared:
        self._members.join(1)
        return self._membership.membership, repeat((), loops)

    def own_sessions(self, loops: int) -> Prepared:
        self._members.join(MEMBERS)
        return self._membership.membership, repeat((), loops)

    def one_session_by_one_select(self, loops: int) -> Prepared:
        return self.group(loops)

    def close(self) -> None:
        self._locator.close()
        self._members.close()


class RawGroup:
    """The same statements on a database with the same rows, or the one that reads members."""

    def __init__(self, directory: Path) -> None:
        self._members = Members(directory)
        self._connection = connect(directory)
        self._execute = self._connection.execute

    def group(self, loops: int) -> Prepared:
        self._members.join(1)
        return self.read, repeat((), loops)

    def own_sessions(self, loops: int) -> Prepared:
        self._members.join(MEMBERS)
        return self.read, repeat((), loops)

    def one_session_by_one_select(self, loops: int) -> Prepared:
        self._members.join(1)
        return self._select, repeat((), loops)

    def close(self) -> None:
        self._connection.close()
        self._members.close()

    def read(self) -> list[object]:
        self._execute(_HOLDERS, _PLACE).fetchall()
        self._execute("BEGIN")
        self._execute(_REV).fetchone()
        members = self._select()
        self._connection.rollback()
        return members

    def _select(self) -> list[object]:
        return self._execute(_MEMBERS, _PLACE).fetchall()


def measure(_: StoreAddress) -> list[Figure]:
    return [
        Figure(
            name="queries for members",
            value=_queries_for_members(),
            unit="queries",
            at_most=1,
        ),
        *ratio("group", "group", 50, at_least=0.5),
        *ratio("group", "one_session_by_one_select", 50),
        *ratio("group", "own_sessions", 15),
    ]


def _queries_for_members() -> int:
    """Count the statements that read members' data while a group of 100 is read once."""
    trace = Trace()
    with (
        scratch() as folder,
        closing(LibraryGroup(folder)) as library,
        closing(RawGroup(folder)) as raw,
    ):
        operation, _ = library.group(1)
        ours = _sent(trace, operation)
        theirs = _sent(trace, raw.read)
    difference = differences(ours, theirs)
    assert not difference, difference
    return sum("data FROM member" in statement for statement in ours)


def _sent(trace: Trace, operation: Operation) -> list[str]:
    trace.begin()
    operation()
    return trace.taken()
