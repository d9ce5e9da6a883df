"""Records: one row per key."""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import islice

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.clock import Clock
from kip30.driver.kit import refusals
from kip30.driver.kit.futures import Completed, each
from kip30.driver.records import Entry, Fence, Kind, NamePage, Version, Write
from kip30.errors import (
    DefiniteError,
    Kip30Error,
)
from kip30.names import Key
from kip30_backends.embedded.calls import Answers
from kip30_backends.embedded.connections import LockBackoff
from kip30_backends.embedded.database import Database, Transaction
from kip30_backends.embedded.errors import raised_by_program
from kip30_backends.embedded.liveness import SessionLiveness
from kip30_backends.embedded.target_states import any_text, entry, foreign

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
        self,
        database: Database,
        root: int,
        clock: Clock,
        liveness: SessionLiveness,
        answers: Answers,
    ) -> None:
        """Keep records of *root*; *clock* and *liveness* decide whether a fence holds."""
        self._database = database
        self._root = root
        self._clock = clock
        self._liveness = liveness
        self._answers = answers

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        # The direct way for the most frequent call; all other cases take the other one.
        if len(keys) == 1:
            try:
                database = self._database
                slot = database.connections.slot()
                with slot.lock:
                    connection = slot.connection
                    if connection is None or time.monotonic() >= database.look_at:
                        connection = database.connection(slot)
                    return Completed([self._entry(connection, keys[0])])
            except (Kip30Error, sqlite3.Error, OSError, TypeError) as error:
                if raised_by_program(error):
                    raise
        return self._answers.give(partial(self._read, keys))

    @override
    def write(self, write: Write) -> Future[Version]:
        work = partial(self._write, write)
        return self._answers.give(lambda: self._database.write(work))

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        backoff = self._database.backoff()
        answers: list[Future[Version]] = []
        for start in range(0, len(writes), _BATCH):
            answers += self._write_together(writes[start : start + _BATCH], backoff)
        return answers

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        place = (self._root, namespace.encode(), after.encode())
        return self._answers.give(lambda: self._database.read(partial(_names, place, limit)))

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
            lambda: self._database.write(partial(self._try_each, writes), backoff=backoff),
        )
        return each(done, len(writes))

    def _try_each(self, writes: Sequence[Write], tx: Transaction) -> list[Version | Exception]:
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
        for guard in write.guards:
            if _version(tx, (*place[:2], guard.key.name.encode())) != guard.version:
                raise refusals.stale_guard(guard)
        found = _version(tx, place)
        unmet = refusals.unmet(write, found)
        if unmet is not None:
            raise unmet
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
            session[1] != self._liveness.boot and not self._liveness.is_alive(*session)
        ):
            raise refusals.fenced(fence)


def _version(tx: Transaction, place: tuple[int, bytes, bytes]) -> Version | None:
    row = tx.execute(_VERSION, place).fetchone()
    return None if row is None else Version(row[0])


def _names(place: tuple[int, bytes, bytes], limit: int, connection: sqlite3.Connection) -> NamePage:
    """Return a page of names; reads until there is one more than fits on it."""
    try:
        found = connection.execute(f"{_NAMES} LIMIT ?", (*place, limit + 1))
        names = [row[0].decode() for row in found]
    except UnicodeDecodeError:
        names = list(islice(_decoded(connection.execute(_NAMES, place)), limit + 1))
    return NamePage(names[:limit], is_last=len(names) <= limit)


def _decoded(rows: Iterable[tuple[bytes]]) -> Iterator[str]:
    """Return the valid names; another program may have written others."""
    for (name,) in rows:
        with suppress(UnicodeDecodeError):
            yield name.decode()
