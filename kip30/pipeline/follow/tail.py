"""A tail: it reads the changes in a view of a store, and appends them to a journal.

A store with a log of changes is read from there. Of the others the whole view is scanned, and
compared with the versions that the journal has; so is a store whose log forgot unread changes.

A key counts as deleted if the log says so, or if a scan saw all places where it could be. A
record that cannot be read leaves the journal as it was; `KnownKeys` has it.
"""

import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

from kip30.driver.scanning import Change, Completeness, Page, Position, Row, ScanDriver
from kip30.errors import PositionLostError, StoreError
from kip30.pipeline.follow.journal import Journal
from kip30.pipeline.follow.journal_rows import JournalPosition, JournalRow, JournalRowKind
from kip30.pipeline.follow.known_keys import Known, KnownKeys, stamp

ANY_NUMBER = sys.maxsize
"""As `TailSettings.deletions`: a scan never stops."""
_SPAN_ROWS = 20_000
_LEAST_DELETIONS, _DELETED_PART = 100, 10

OpenScanner = Callable[[Path], ScanDriver]
"""Opens the view for reading; its copies of itself go to the directory given."""


class StoppedError(Exception):
    """The tail was stopped between two segments."""


class SegmentSize(NamedTuple):
    """Size at which a segment is full.

    Attributes:
        rows: The number of its rows.
        size: About how many bytes its keys and values have.
    """

    rows: int = 20_000
    size: int = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSettings:
    """Settings of a tail.

    Attributes:
        segment: The size at which to end a segment.
        deletions: How many keys one scan may find deleted, else it stops there; None: a tenth of
            those that were known when it began, or 100 if that is more.
        accepted_stores: Stores (`Position.store`) that are followed although the journal is of
            another one.
    """

    segment: SegmentSize = field(default_factory=SegmentSize)
    deletions: int | None = None
    accepted_stores: Collection[str] = ()


_DEFAULTS = TailSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class TailFiles:
    """The files of a tail.

    Attributes:
        journal: The changes that it read.
        known: The keys that the journal has.
        scratch: Where the store may keep copies of itself; the tail deletes them.
    """

    journal: Journal
    known: KnownKeys
    scratch: Path


class Tail:
    """Follows one view. One thread at a time uses an object.

    A process may be killed at any point: another tail with the same files continues, each change is
    in the journal once, and the changes of a key are in order.

    Attributes:
        completeness: What the journal shows of a key that changes several times; None as long as
            the store was not reached.
    """

    def __init__(
        self,
        files: TailFiles,
        open_scanner: OpenScanner,
        *,
        settings: TailSettings = _DEFAULTS,
        stopped: Callable[[], bool] = lambda: False,
        warn: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """Continue with *files*, in which `begin_at` or a tail left a segment.

        Args:
            files: The files of the tail.
            open_scanner: Opens the view.
            settings: Its settings.
            stopped: Called after each page and segment; if it returns true, `advance` ends.
            warn: Receives what an operator should know.

        Raises:
            StoreError: The files are not of one moment, or a segment is missing or damaged.
        """
        self._journal = files.journal
        self._known = files.known
        self._scratch = files.scratch
        self._open = open_scanner
        self._settings = settings
        self._stopped = stopped
        self._warn = warn
        self._store: ScanDriver | None = None
        self._entries: list[JournalRow] = []
        self._bytes = 0
        self.completeness: Completeness | None = None
        self._catch_up()

    def close(self) -> None:
        """Close the connection; `advance` opens another one."""
        store, self._store = self._store, None
        if store is not None:
            store.close()
        rmtree(self._scratch, ignore_errors=True)

    def read_again(self) -> None:
        """Let the next `advance` add every key, as if each were changed, to the journal."""
        self._known.forget_stamps()
        self._journal.append([], replace(self._position, order=-1, listing=True))
        self._known.apply(self._journal.segment, [])

    def advance(self) -> None:
        """Read everything up to the present into the journal.

        Raises:
            StoppedError: It was stopped before its end.
            StoreError: This is another store than the journal's, or an older state of it, or more
                keys are gone than the settings allow. No deletion is in the journal.
            PositionLostError: The store forgot this moment while it was scanned: repeat.
            Kip30Error: The store cannot be read. What was read before is in the journal.
        """
        self._entries, self._bytes = [], 0
        store = self._opened()
        reached = time.time()
        until = self._present(store)
        if warning := self._other_store(until):
            self._known.forget_stamps()
            self._lose(warning, replace(self._position, at=None), until.store)
        has_log = store.completeness is not None
        if has_log and not self._position.listing:
            try:
                self._read_log(store, until)
            except PositionLostError as error:
                self._lose(str(error), self._position, until.store)
        if not has_log or self._position.listing:
            if self._position.listing and not self._position.listed:
                self._flush(replace(self._position, listed=until.store))
            self._compare(store, until)
        self._finish(JournalPosition(at=until, reached=reached))

    @property
    def _position(self) -> JournalPosition:
        position = self._journal.position
        assert position is not None  # noqa: S101  `begin_at` made one
        return position

    def _catch_up(self) -> None:
        """Recover the rows that were appended before a process was killed.

        Raises:
            StoreError: The known keys are not of this journal.
        """
        if self._known.segment > self._journal.segment:
            raise StoreError(
                f"the known keys are as of segment {self._known.segment}, and the journal ends with"
                f" segment {self._journal.segment}: these files were copied at two moments; begin"
                " another run"
            )
        for segment in range(self._known.segment + 1, self._journal.segment + 1):
            if segment > 0:  # the first segment holds the position to begin at, alone
                self._known.apply(segment, self._journal.states(segment))

    def _opened(self) -> ScanDriver:
        if self._store is None:
            rmtree(self._scratch, ignore_errors=True)
            self._scratch.mkdir(mode=0o700)
            self._store = self._open(self._scratch)
            self.completeness = self._store.completeness or Completeness.FINAL_STATES
        return self._store

    def _present(self, store: ScanDriver) -> Position:
        """Return the present, without the copy that a store kept for the moment before."""
        before = set(self._scratch.iterdir())
        at = store.position()
        if set(self._scratch.iterdir()) - before:
            for old in before:
                old.unlink(missing_ok=True)
        return at

    def _read_log(self, store: ScanDriver, until: Position) -> None:
        position = self._position
        if position.at is None or position.at == until:
            return
        last = position.order
        for changes in store.changes(position.at, until):
            self._check_stopped()
            for change in changes:
                if change.order <= position.order:
                    continue  # read before the last tail ended
                if self._is_full and change.order != last:
                    self._flush(replace(position, order=last))
                last = change.order
                self._add_change(change)

    def _add_change(self, change: Change) -> None:
        """Add *change*, and note at once whether its record can be read.

        Not when the segment is applied: a record may change, and be damaged, in one segment.
        """
        if change.rejected is not None:
            self._known.reject([change.rejected])
        elif change.is_record:
            self._known.note_readable(change.key)
            self._add(JournalRow(change.key, change.row, change.order))
        else:
            self._known.note_gone(change.key)

    def _other_store(self, until: Position) -> str:
        """Return the warning about a source that is not what it was, if it is accepted.

        It is another store, or an older state of this one. Empty: it is neither.

        Raises:
            StoreError: It is not accepted.
        """
        at, now = self._position.at, until.store
        before = self._position.listed or (now if at is None else at.store)
        if before != now:
            found = f"the source is another store than before: it was {before}, and is {now}"
        elif at is not None and until.precedes(at):
            found = f"the source was at {at.at}, and is at {until.at}: it was restored"
        else:
            return ""
        if now not in self._settings.accepted_stores:
            raise StoreError(
                f"{found}; check its configuration, or give --accept-store '{now}' to follow this"
                " one from now on"
            )
        return found

    def _check_deletions(self, known: int) -> None:
        """Raise if too many are gone of the keys *known* before the scan: new ones do not count."""
        most, gone = self._settings.deletions, self._known.count_unseen()
        if most is None:
            most = max(_LEAST_DELETIONS, known // _DELETED_PART)
        if gone <= most:
            return
        raise StoreError(
            f"{gone} of {known} keys are gone at the source, and no more than {most} may"
            " be deleted at once: check the source, or give --max-delete a greater number"
        )

    def _lose(self, reason: str, position: JournalPosition, store: str) -> None:
        """Note that changes after *position* are missing: a comparison with *store* is due."""
        self._warn(f"changes are missing, and all keys are compared: {reason}")
        self._entries, self._bytes = [JournalRow(None, None, None, JournalRowKind.GAP)], 0
        self._flush(replace(position, order=-1, listing=True, listed=store))

    def _compare(self, store: ScanDriver, until: Position) -> None:
        """Add the differences between the view and the journal."""
        known = len(self._known)
        self._known.begin_scan()
        for span in store.plan(until, _SPAN_ROWS):
            for page in store.scan(span, until):
                self._check_stopped()
                if page.rejected:
                    self._known.reject(page.rejected)
                    self._known.hide(page.rejected)
                for row in self._differing(page):
                    self._add(JournalRow(row.key, row, row.modified))
                    self._flush_if_full()
        self._check_deletions(known)
        for key in self._known.unseen():
            self._add(JournalRow(key, None, None))
            self._flush_if_full()

    def _differing(self, page: Page) -> Iterator[Row]:
        stamps = list(map(stamp, page.majors, page.minors, page.modified))
        changed = self._known.changed(page.keys, stamps)
        columns: Sequence[Sequence[Any]] = page[: len(Row._fields)]
        return (Row._make(column[number] for column in columns) for number in changed)

    def _add(self, entry: JournalRow) -> None:
        self._entries.append(entry)
        self._bytes += entry.size

    @property
    def _is_full(self) -> bool:
        full = self._settings.segment
        return len(self._entries) >= full.rows or self._bytes >= full.size

    def _flush_if_full(self) -> None:
        if self._is_full:
            self._flush(self._position)

    def _finish(self, position: JournalPosition) -> None:
        if self._entries or self._position.listing:
            self._flush(position)
        elif self._position.at != position.at:
            self._journal.note(position)
        else:
            self._journal.touch(position.reached)

    def _flush(self, position: JournalPosition) -> None:
        """Append a segment. If a process is killed in here, the next tail repeats the rest."""
        self._journal.append(self._entries, position)
        states = [_known(entry) for entry in self._entries if entry.key is not None]
        self._known.apply(self._journal.segment, states)
        self._entries, self._bytes = [], 0
        self._check_stopped()

    def _check_stopped(self) -> None:
        """End here if requested. Changes that are not in a segment yet are read again later."""
        if self._stopped():
            raise StoppedError


def begin_at(files: TailFiles, at: Position | None) -> None:
    """Let a tail begin at *at*, of which *files* know all keys; None: with all that is there."""
    files.journal.append(
        [], JournalPosition(at=at, listing=at is None, reached=time.time() if at else 0.0)
    )


def _known(entry: JournalRow) -> Known:
    key, row = entry.key or b"", entry.row
    return Known(key, None if row is None else stamp(row.major, row.minor, row.modified))
