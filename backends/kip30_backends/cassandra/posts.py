"""What can be claimed: rows with a time to live, and the statements about them."""

from dataclasses import dataclass, field
from typing import NamedTuple

from kip30.driver.records import Entry
from kip30_backends.cassandra.library import Statement
from kip30_backends.cassandra.statements import Statements


class Post(NamedTuple):
    """A row to be claimed.

    Attributes:
        kind: ``members`` or ``leaders``.
        scope: The group or service.
        name: The id or candidate.
    """

    kind: str
    scope: str
    name: str

    @property
    def place(self) -> tuple[str, str]:
        """The partition."""
        return self.kind, self.scope

    @property
    def row(self) -> tuple[str, ...]:
        """The row: a service has one for all candidates."""
        return self.place if self.kind == "leaders" else (*self.place, self.name)


class Table:
    """The statements about posts, which live so many whole seconds."""

    def __init__(self, statements: Statements, root: str, seconds: int) -> None:
        """Speak of the posts below *root*."""
        self.seconds = seconds
        self._bind = statements.bind
        self._root = root

    def write(self, post: Post, entry: Entry, held: str, beat: int) -> Statement:
        """Return what writes *entry*, all of it and for its whole time, if the nonce is *held*.

        And if the row has a lower *beat*: what was sent before does not come after this, with
        which the row would end sooner again.
        """
        version, nonce, data = entry
        if post.kind == "leaders":
            seat = (post.name, nonce, data, beat, self._root, post.scope)
            return self._bind("renew_seat", self.seconds, *seat, held, beat)
        member = (version.major, nonce, data, beat, self._root, post.scope, post.name)
        return self._bind("write_member", self.seconds, *member, held, version.major, beat)

    def insert(self, post: Post, entry: Entry) -> Statement:
        """Return what writes *entry* of a member if there is no such row."""
        (rev, _), nonce, data = entry
        where = (self._root, post.scope, post.name)
        return self._bind("insert_member", self.seconds, rev, nonce, data, rev, *where)

    def take(
        self, post: Post, nonce: str, data: bytes, beat: int, birth: int | None = None
    ) -> Statement:
        """Return what writes the leader if there is none; with a *birth* if it is still there."""
        seat = (self.seconds, post.name, nonce, data, beat, self._root, post.scope)
        if birth is None:
            return self._bind("take_seat", *seat)
        return self._bind("take_born_seat", *seat, birth)

    def delete(self, post: Post, held: str) -> Statement:
        """Return what deletes the row if the nonce is *held*."""
        if post.kind == "leaders":
            return self._bind("leave_seat", self._root, post.scope, held)
        return self._bind("delete_member", self._root, post.scope, post.name, held)


@dataclass(eq=False, slots=True)
class Holding:
    """A post that is held.

    Attributes:
        post: What it is.
        entry: What the row says, as far as is known.
        sent_at: When the last acknowledged renewal was sent.
        doubtful: What it may say instead, by nonce, because answers were lost.
    """

    post: Post
    entry: Entry
    sent_at: float
    doubtful: dict[str, Entry] = field(default_factory=dict[str, Entry])

    def nonces(self) -> set[str]:
        """Return what the nonce of the row may be."""
        return {self.entry.nonce, *self.doubtful}

    def renewed(self, entry: Entry, sent_at: float) -> None:
        """Take note that the row says *entry*, by a request that was sent then.

        Writes that are in doubt name the nonce that they replace: only another one ends them.
        """
        if entry.nonce != self.entry.nonce:
            self.doubtful.clear()
        self.entry = entry
        self.sent_at = max(self.sent_at, sent_at)
