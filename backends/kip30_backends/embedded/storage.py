"""Records: one row per key."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import islice
from time import monotonic

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.clock import Clock
from kip30.driver.kit.futures import Completed, mapped
from kip30.driver.records import Condition, Entry, Fence, Kind, NamePage, Version, Write
from kip30.errors import (
    DefiniteError,
    FencedError,
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    VersionConflictError,
)
from kip30.names import Key
from kip30_backends.embedded.database import Database, LockBackoff, Transaction
from kip30_backends.embedded.errors import raised_by_program
from kip30_backends.embedded.liveness import Peers
from kip30_backends.embedded.request import Answers
from kip30_backends.embedded.snapshots import any_text, entry, foreign

_READ = "SELECT rev, nonce, data FROM kv WHERE root = ? AND namespace = ? AND name = ?"
_VERSION = "SELECT rev FROM kv WHERE root = ? AND namespace = ? AND name = ?"
_WRITE = """
INSERT OR REPLACE INTO kv (rev, nonce, data, root, namespace, name) VALUES (?, ?, ?, ?, ?, ?)
"""
_DELETE = "DELETE FROM kv WHERE root = ? AND namespace = ? AND name = ?"
_NAMES = """
SELECT name FROM kv WHERE root = ? AND namespace = ? AND name > ?
ORDER BY name
"""
_EPOCH_IN_FORCE = """
SELECT session.id, boot, deadline FROM service JOIN session ON session.id = session
WHERE root = ? AND scope = ? AND epoch = ? AND deadline > ?
"""
_BATCH = 100


class EmbeddedStorage(StorageDriver):
    """Keys and their values."""

    def __init__(
        self, database: Database, root: int, clock: Clock, peers: Peers, answers: Answers
    ) -> None:
        """Keep records of *root*; a fence holds by *clock* for leaders that are among *peers*."""
        self._database = database
        self._root = root
        self._clock = clock
        self._peers = peers
        self._answers = answers

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        # The straight way for the commonest call; whatever is unusual takes the other one.
        if len(keys) == 1 and not self._answers.faults.armed:
            try:
                database = self._database
                slot = database.connections.slot()
                with slot.lock:
                    connection = slot.connection
                    if connection is None or monotonic() >= database.look_at:
                        connection = database.connection(slot)
                    return Completed([self._entry(connection, keys[0])])
            except (Kip30Error, sqlite3.Error, OSError, TypeError) as error:
                if raised_by_program(error):
                    raise
        return self._answers.give("storage.read", _subject(keys), partial(self._read, keys))

    @override
    def write(self, write: Write) -> Future[Version]:
        work = partial(self._write, write)
        return self._answers.give(
            "storage.write", str(write.key), lambda: self._database.write(work)
        )

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        step = 1 if self._answers.faults.armed else _BATCH
        backoff = self._database.backoff()
        answers: list[Future[Version]] = []
        for start in range(0, len(writes), step):
            answers += self._write_together(writes[start : start + step], backoff)
        return answers

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        place = (self._root, namespace.encode(), after.encode())
        return self._answers.give(
            "storage.list_names",
            namespace,
            lambda: self._database.read(partial(_names, place, limit)),
        )

    def _entry(self, connection: sqlite3.Connection, key: Key) -> Entry | None:
        place = (self._root, key[0].encode(), key[1].encode())
        row = connection.execute(_READ, place).fetchone()
        return None if row is None else entry(*row)

    def _read(self, keys: Sequence[Key]) -> list[Entry | None]:
        return self._database.read(partial(self._read_each, keys))

    def _read_each(self, keys: Sequence[Key], connection: sqlite3.Connection) -> list[Entry | None]:
        connection.execute("BEGIN")  # which makes this one look at the database
        with any_text(connection):
            return [self._readable(connection, key) for key in keys]

    def _readable(self, connection: sqlite3.Connection, key: Key) -> Entry | None:
        try:
            return self._entry(connection, key)
        except TypeError as error:
            raise foreign(f"the record of {str(key)!r}", error) from None

    def _write_together(
        self, writes: Sequence[Write], backoff: LockBackoff
    ) -> list[Future[Version]]:
        """Do *writes* in one transaction, in which each is refused or done by itself."""
        done = self._answers.give(
            "storage.write_many",
            _subject([write.key for write in writes]),
            lambda: self._database.write(partial(self._try_each, writes), backoff=backoff),
        )
        return [mapped(done, partial(_outcome, number)) for number in range(len(writes))]

    def _try_each(self, writes: Sequence[Write], tx: Transaction) -> list[Version | DefiniteError]:
        return [self._try(write, tx) for write in writes]

    def _try(self, write: Write, tx: Transaction) -> Version | DefiniteError:
        try:
            return self._write(write, tx)
        except DefiniteError as refused:
            return refused

    def _write(self, write: Write, tx: Transaction) -> Version:
        """Do *write*, or raise before anything is changed."""
        if write.fence is not None:
            self._check_fence(write.fence, tx)
        place = (self._root, write.key.namespace.encode(), write.key.name.encode())
        row = tx.execute(_VERSION, place).fetchone()
        found = None if row is None else Version(row[0])
        _check_condition(write, found)
        rev = tx.change(self._root, Kind.VALUE, place[1], place[2])
        if write.data is not None:
            tx.execute(_WRITE, (rev, write.nonce, write.data, *place))
            return Version(rev)
        tx.execute(_DELETE, place)
        return found or Version(rev)

    def _check_fence(self, fence: Fence, tx: Transaction) -> None:
        place = (self._root, fence.service.encode())
        holds = (*place, fence.epoch, self._clock.now())
        session = tx.execute(_EPOCH_IN_FORCE, holds).fetchone()
        if session is None or (
            session[1] != self._peers.boot and not self._peers.is_alive(*session)
        ):
            raise FencedError(
                f"epoch {fence.epoch} is not the newest of {fence.service!r}, or is over"
            )


def _check_condition(write: Write, found: Version | None) -> None:
    condition = write.condition
    if condition is Condition.ABSENT and found is not None:
        raise KeyExistsError(f"{str(write.key)!r} is there already")
    if found is None and (write.data is None or condition not in {Condition.ABSENT, Condition.ANY}):
        raise KeyMissingError(f"there is no key {str(write.key)!r}")
    if isinstance(condition, Version) and found != condition:
        raise VersionConflictError(f"{str(write.key)!r} has version {found}, not {condition}")


def _outcome(number: int, outcomes: Sequence[Version | DefiniteError]) -> Version:
    outcome = outcomes[number]
    if isinstance(outcome, DefiniteError):
        raise outcome
    return outcome


def _names(place: tuple[int, bytes, bytes], limit: int, connection: sqlite3.Connection) -> NamePage:
    """Return a page of names, which are looked for until there is one more than belongs on it."""
    try:
        found = connection.execute(f"{_NAMES} LIMIT ?", (*place, limit + 1))
        names = [row[0].decode() for row in found]
    except UnicodeDecodeError:
        names = list(islice(_decoded(connection.execute(_NAMES, place)), limit + 1))
    return NamePage(names[:limit], is_last=len(names) <= limit)


def _decoded(rows: Iterable[tuple[bytes]]) -> Iterator[str]:
    """Return the names that are names; another program may have written others."""
    for (name,) in rows:
        with suppress(UnicodeDecodeError):
            yield name.decode()


def _subject(keys: Sequence[Key]) -> str:
    return str(keys[0]) if keys else ""
