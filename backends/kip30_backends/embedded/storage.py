"""Records: one row per key."""

import sqlite3
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from time import monotonic

from typing_extensions import override

from kip30.clock import Clock
from kip30.driver import StorageDriver
from kip30.errors import (
    DefiniteError,
    FencedError,
    KeyExistsError,
    KeyMissingError,
    Kip30Error,
    VersionConflictError,
)
from kip30.futures import Completed, mapped
from kip30.names import Key
from kip30.records import Condition, Entry, Fence, Kind, Version, Write
from kip30_backends.embedded.answers import Answers
from kip30_backends.embedded.database import Database, Transaction
from kip30_backends.embedded.errors import raised_by_program
from kip30_backends.embedded.patience import Patience

_READ = "SELECT rev, nonce, data FROM kv WHERE root = ? AND namespace = ? AND name = ?"
_VERSION = "SELECT rev FROM kv WHERE root = ? AND namespace = ? AND name = ?"
_WRITE = """
INSERT OR REPLACE INTO kv (rev, nonce, data, root, namespace, name) VALUES (?, ?, ?, ?, ?, ?)
"""
_DELETE = "DELETE FROM kv WHERE root = ? AND namespace = ? AND name = ?"
_NAMES = """
SELECT name FROM kv WHERE root = ? AND namespace = ? AND name > ? ORDER BY name LIMIT ?
"""
_EPOCH_IN_FORCE = """
SELECT epoch FROM service JOIN session ON session.id = session
WHERE root = ? AND scope = ? AND boot = ? AND deadline > ?
"""
_BATCH = 100


class EmbeddedStorage(StorageDriver):
    """Keys and their values."""

    def __init__(
        self, database: Database, root: int, clock: Clock, boot: str, answers: Answers
    ) -> None:
        """Keep records of *root*; a fence holds by *clock* and within this *boot*."""
        self._database = database
        self._root = root
        self._clock = clock
        self._boot = boot
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
            except (Kip30Error, sqlite3.Error, OSError) as error:
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
        patience = self._database.patience()
        answers: list[Future[Version]] = []
        for start in range(0, len(writes), step):
            answers += self._write_together(writes[start : start + step], patience)
        return answers

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[list[str]]:
        parameters = (self._root, namespace.encode(), after.encode(), limit)
        return self._answers.give(
            "storage.list_names",
            namespace,
            lambda: self._database.read(partial(_names, parameters)),
        )

    def _entry(self, connection: sqlite3.Connection, key: Key) -> Entry | None:
        place = (self._root, key[0].encode(), key[1].encode())
        row = connection.execute(_READ, place).fetchone()
        return None if row is None else Entry(Version(row[0]), row[1], row[2])

    def _read(self, keys: Sequence[Key]) -> list[Entry | None]:
        return self._database.read(lambda c: [self._entry(c, key) for key in _within(c, keys)])

    def _write_together(self, writes: Sequence[Write], patience: Patience) -> list[Future[Version]]:
        """Do *writes* in one transaction, in which each is refused or done by itself."""
        done = self._answers.give(
            "storage.write_many",
            _subject([write.key for write in writes]),
            lambda: self._database.write(partial(self._try_each, writes), patience=patience),
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
        now = self._clock.now()
        if tx.execute(_EPOCH_IN_FORCE, (*place, self._boot, now)).fetchone() != (fence.epoch,):
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


def _within(connection: sqlite3.Connection, keys: Sequence[Key]) -> Sequence[Key]:
    """Begin a transaction that makes reading *keys* one look at the database."""
    connection.execute("BEGIN")
    return keys


def _names(parameters: tuple[int, bytes, bytes, int], connection: sqlite3.Connection) -> list[str]:
    return [row[0].decode() for row in connection.execute(_NAMES, parameters)]


def _subject(keys: Sequence[Key]) -> str:
    return str(keys[0]) if keys else ""
