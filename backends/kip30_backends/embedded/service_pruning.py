"""Removing the remains of unused services: the row with the last epoch of each.

An epoch must never occur twice, because a write that was fenced with it may still be under way. So
the row of a service may only be removed if its epochs cannot be used again. One more row for each
root, of a service without a name, holds the greatest epoch that was removed: the *floor*. A service
without a row begins after that. Both change in one transaction.

A kip30 that does not know the floor would start at 1 again. The first call that prunes raises the
version of the file, so that an older kip30 no longer opens it. A trigger refuses the claims of one
that has already opened it.

Only the revision of a service's last term is known. So each call notes the revision of its time,
and removes what is older than a note of long enough ago; the first one removes nothing, unless it
is to remove all.
"""

import math
import sqlite3
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kip30.driver.records import Kind, Pruned
from kip30_backends.embedded.database import Database, Transaction
from kip30_backends.embedded.database_file import VERSION

NO_NAME = b""
"""The scope of the row that holds the greatest epoch removed: no service is called that."""

_ROWS = 500
"""Number of services that one call looks at, while other clients cannot write."""
_LAST_TO_REMOVE = 2**62
"""Greater epochs are not kip30's: a floor as high as that would leave none for other services."""
_NOTE_SECONDS = 3600.0
_NOTES = 10
"""A note is made every hour, or more often if what was unused for less than ten is to go."""

_TABLE = "CREATE TABLE IF NOT EXISTS mark (rev INTEGER NOT NULL, at REAL NOT NULL)"
_TRIGGER = """
CREATE TRIGGER IF NOT EXISTS service_floor BEFORE INSERT ON service
WHEN NEW.scope != x''
AND NEW.epoch <= (SELECT epoch FROM service WHERE root = NEW.root AND scope = x'')
AND NOT EXISTS (SELECT 1 FROM service WHERE root = NEW.root AND scope = NEW.scope)
BEGIN SELECT RAISE(ABORT, 'services were pruned by a newer kip30: upgrade this one'); END
"""
_RAISE_VERSION = f"PRAGMA user_version = {VERSION}"

_HAS_NOTES = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'mark'"
_LAST_NOTE = "SELECT rev, at FROM mark ORDER BY rowid DESC LIMIT 1"
_NOTE = "INSERT INTO mark VALUES (?, ?)"
_REACHED = "SELECT max(rev) FROM mark WHERE at <= ?"
_REV = "SELECT max(rev) FROM change"

_SERVICES = """
SELECT scope, epoch, rev, session IS NULL FROM service WHERE root = ? AND scope > ?
ORDER BY scope LIMIT ?
"""
_REMOVE = "DELETE FROM service WHERE root = ? AND scope = ?"
_RAISE = """
INSERT INTO service (root, scope, epoch, rev) VALUES (?, x'', ?, 0)
ON CONFLICT (root, scope) DO UPDATE SET epoch = max(epoch, excluded.epoch)
"""

_Execute = Callable[..., sqlite3.Cursor]


class _Service(NamedTuple):
    scope: bytes
    epoch: int
    rev: int
    is_free: int

    def is_unused(self, reached: int) -> bool:
        """Return whether it is vacant since *reached*; other programs may have written anything."""
        numbers: tuple[Any, Any] = (self.epoch, self.rev)
        if not self.is_free or any(type(number) is not int for number in numbers):
            return False
        return self.rev <= reached and 0 < self.epoch < _LAST_TO_REMOVE


class Pruning(NamedTuple):
    """One call: its services and its time.

    *now* is the time of day in seconds. If that is set back or ahead, services are removed late or
    early, with no other harm.
    """

    root: int
    unused_seconds: float
    after: str = ""
    now: float | None = None

    def done(self, database: Database, dry_run: bool) -> Pruned:  # noqa: FBT001  the contract's
        """Return the result."""
        if dry_run:
            return database.read(self._looked)
        return database.write(self._pruned)

    def _looked(self, connection: sqlite3.Connection) -> Pruned:
        execute = connection.execute
        has_notes = execute(_HAS_NOTES).fetchone()[0]
        reached = self._reached(execute) if has_notes or not self.unused_seconds else None
        return _outcome(*self._found(execute, reached))

    def _pruned(self, transaction: Transaction) -> Pruned:
        execute = transaction.execute
        _migrate(execute)
        reached = self._reached(execute)
        self._note(execute)
        unused, after = self._found(execute, reached)
        if unused:
            execute(_RAISE, (self.root, max(service.epoch for service in unused)))
        for service in unused:
            execute(_REMOVE, (self.root, service.scope))
        return _outcome(unused, after)

    def _time(self) -> float:
        return time.time() if self.now is None else self.now

    def _reached(self, execute: _Execute) -> int | None:
        """Return the revision that was reached long enough ago; None if that is not known."""
        if self.unused_seconds:
            found = execute(_REACHED, (self._time() - self.unused_seconds,))
        else:
            found = execute(_REV)
        reached: int | None = found.fetchone()[0]
        return reached

    def _note(self, execute: _Execute) -> None:
        """Note the current revision, unless a recent note makes that needless."""
        now, rev = self._time(), execute(_REV).fetchone()[0]
        last_rev, last_at = execute(_LAST_NOTE).fetchone() or (None, math.inf)
        apart = min(_NOTE_SECONDS, self.unused_seconds / _NOTES)
        if rev != last_rev and not last_at <= now < last_at + apart:
            execute(_NOTE, (rev, now))

    def _found(self, execute: _Execute, reached: int | None) -> tuple[list[_Service], str]:
        """Return services to remove, and the one after which to continue."""
        if reached is None:
            return [], ""
        found = execute(_SERVICES, (self.root, bytes.fromhex(self.after), _ROWS))
        rows = list(map(_Service._make, found))
        after = rows[-1].scope.hex() if len(rows) == _ROWS else ""
        return [row for row in rows if row.is_unused(reached)], after


def _outcome(unused: list[_Service], after: str) -> Pruned:
    return Pruned({Kind.SERVICE: len(unused)}, after)


def _migrate(execute: _Execute) -> None:
    """Make the file one of which services can be removed."""
    version: int = execute("PRAGMA user_version").fetchone()[0]
    if version < VERSION:
        for statement in (_TABLE, _TRIGGER, _RAISE_VERSION):
            execute(statement)
