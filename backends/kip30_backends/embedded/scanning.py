"""Reading the store in bulk: from copies pinned at one revision.

SQLite reads a point in time within one transaction of one process. Such a transaction would keep
the log from being restarted for as long as it lasts, and no other process could join it. A copy has
neither problem. It is made by ``VACUUM INTO``, in a process of its own: this one then has no SQLite
state of the live file, which a fork in the middle of the copy would break (`fork_safety`). The live
file is copied and never read here, so a scan delays no writer and no fork harms it. SQLite shares
its mutexes among all files of a process, so each use of a copy holds forks off, a page at a time.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.kit.interpreter import interpreter
from kip30.driver.records import Kind
from kip30.driver.scanning import (
    Change,
    Completeness,
    Consistency,
    Layout,
    Page,
    PageSize,
    Position,
    ScanDriver,
    Span,
    View,
    check_rows,
)
from kip30.errors import (
    ClosedError,
    LifecycleError,
    PositionLostError,
    StoreError,
    UnavailableError,
    UnsupportedError,
)
from kip30_backends.embedded.database import KINDS
from kip30_backends.embedded.database_file import (
    DATABASE,
    check_marks,
    identity_of,
    trusted_directory,
)
from kip30_backends.embedded.errors import stayed_locked, translate
from kip30_backends.embedded.liveness_locks import held_off
from kip30_backends.embedded.row_decoding import change_of, claims_of, page_of
from kip30_backends.embedded.settings import EmbeddedSettings

_COPY = """
import os, sqlite3, sys
uri, copy, seconds = sys.argv[1:]
os.umask(0o077)
try:
    connection = sqlite3.connect(uri, uri=True, timeout=float(seconds), isolation_level=None)
    connection.execute("VACUUM INTO ?", (copy,))
except sqlite3.Error as error:
    sys.exit(f"{getattr(error, 'sqlite_errorcode', 1)} {error}")
"""
_OF_WRITES = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC}
"""Codes that are of the copy, because only that is written."""
_REV = "SELECT max(rev) FROM change"


class CopySource(NamedTuple):
    """The source of a copy: which database, and its newest revision."""

    identity: str
    rev: int


def pin(file: Path, directory: Path, seconds: float) -> CopySource:
    """Copy *file* into *directory*.

    Raises:
        StoreError: It cannot be read or is not kip30's, or the copy cannot be written.
        UnavailableError: It stayed locked for *seconds*.
    """
    draft = directory / f"draft-{os.getpid()}-{os.urandom(4).hex()}.db"
    try:
        _copy(file, draft, seconds)
        # A child must not inherit SQLite's mutexes locked; all files share them. See `fork_safety`.
        with held_off.lock, closing(open_copy(draft)) as copy:
            check_marks(copy, file)
            pinned = CopySource(identity_of(copy), copy.execute(_REV).fetchone()[0])
        draft.replace(path_of(directory, pinned.rev))
    except (sqlite3.Error, OSError) as error:
        raise translate(error, draft) from error
    finally:
        draft.unlink(missing_ok=True)
    return pinned


def path_of(directory: Path, rev: int) -> Path:
    """Return the path of the copy of revision *rev* in *directory*."""
    return directory / f"pin-{rev}.db"


def open_copy(copy: Path) -> sqlite3.Connection:
    """Return a connection to a copy: it takes no locks, because copies are never written."""
    uri = f"{copy.absolute().as_uri()}?immutable=1"
    return sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)


def _copy(file: Path, copy: Path, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        before = _unused(file)
        # A database without a log has no connection. It is read without locks then: a reader that
        # takes them would make a log and an index beside it, and could not remove them.
        mode = "mode=ro" if before is None else "immutable=1"
        _run(f"{file.as_uri()}?{mode}", copy, seconds, file)
        if before is None or _unused(file) == before:
            return
        copy.unlink()  # a process opened the file meanwhile, so the copy may be a mixture
        if time.monotonic() > until:
            raise UnavailableError(stayed_locked(file))


def _unused(file: Path) -> tuple[int, int] | None:
    """Return a value that changes with *file*, or None if a process has it open."""
    if os.path.lexists(f"{file}-wal"):
        return None
    found = file.stat()
    return found.st_mtime_ns, found.st_size


def _run(uri: str, copy: Path, seconds: float, file: Path) -> None:
    command = [interpreter(), "-I", "-S", "-c", _COPY, uri, str(copy), str(seconds)]
    done = subprocess.run(  # noqa: S603  our own program, with the paths as arguments
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if not done.returncode:
        return
    code, _, message = done.stderr.strip().rpartition("\n")[2].partition(" ")
    if not code.isdecimal():
        raise StoreError(f"the copy of {file} failed: {done.stderr.strip()}")
    error = sqlite3.OperationalError(message)
    error.sqlite_errorcode = int(code)
    raise translate(error, copy if error.sqlite_errorcode in _OF_WRITES else file)


_ROOT = "SELECT id FROM root WHERE name = ?"
_BETWEEN = """
FROM kv WHERE root = ? AND (namespace, name) > (?, ?) AND (namespace, name) <= (?, ?)
"""
_CUT = f"SELECT namespace, name {_BETWEEN} ORDER BY namespace, name LIMIT 1 OFFSET ?"
_COUNT = f"SELECT count(*) {_BETWEEN}"
_KEY = "CAST(iif(namespace = x'', name, namespace || x'2f' || name) AS BLOB)"
_PAGE = f"""
SELECT {_KEY}, data, rev {_BETWEEN} ORDER BY namespace, name LIMIT ?
"""
_OLDEST = "SELECT min(rev) FROM change"
_CHANGES = """
SELECT max(change.rev), change.scope, change.name, kv.data, kv.rev
FROM change LEFT JOIN kv
ON kv.root = change.root AND kv.namespace = change.scope AND kv.name = change.name
WHERE change.rev > ? AND change.root = ? AND change.kind = ?
GROUP BY change.scope, change.name ORDER BY 1
"""
_MEMBERS = "SELECT scope, id, data, born, session FROM member WHERE root = ? ORDER BY scope, id"
_SERVICES = (
    "SELECT scope, candidate, data, epoch, session FROM service"
    " WHERE root = ? AND scope != x'' ORDER BY scope"
)
_AFTER_ALL = b"\xff"  # of which no name in UTF-8 has a byte

_Place = tuple[bytes, bytes]
"""A namespace and a name. Names are not empty, so ``(namespace, b"")`` is before all of them."""


class _Range(NamedTuple):
    """The keys after *after*, up to and including *until*."""

    after: _Place
    until: _Place

    @classmethod
    def of_token(cls, token: bytes) -> "_Range":
        first, second, third, fourth = map(bytes.fromhex, json.loads(token))
        return cls((first, second), (third, fourth))

    def token(self) -> bytes:
        return json.dumps([part.hex() for part in (*self.after, *self.until)]).encode()


class EmbeddedScanner(ScanDriver):
    """One directory. A copy of its own is deleted with it, by the process that made it alone."""

    consistency = Consistency.POINT_IN_TIME
    completeness = Completeness.FINAL_STATES
    needs_scratch = True

    def __init__(self, context: Context, settings: EmbeddedSettings, view: View) -> None:
        """Check that there is a database to read.

        Raises:
            StoreError: There is none, or another user may change it.
            UnsupportedError: The view is of `Layout.RAW`, or there is no Python to start.
        """
        interpreter()  # before anything is made
        _check_layout(view)
        self._context = context
        self._view = view
        self._file = _existing(settings.directory)
        self._pid = os.getpid()
        self._is_private = view.scratch is None
        self._directory = view.scratch or Path(tempfile.mkdtemp(prefix="kip30-scan-"))
        private = self._directory if self._is_private else None
        self._drop = weakref.finalize(self, _remove, private, self._pid)
        # The source of the newest copy, so that none is made while nothing changes.
        self._newest: tuple[object, Position] | None = None
        self._connections: dict[sqlite3.Connection, None] = {}  # keys alone
        self._closed = False

    @override
    def position(self) -> Position:
        """Copy the database, unless nothing was written since this object copied it.

        Without a scratch directory the new copy replaces the last one: scans of that end with
        `PositionLostError`.

        Raises:
            StoreError: The database is not kip30's or is damaged, or there is no room for a copy.
        """
        self._check_open()
        seen = _signature(self._file)
        if self._newest is not None and self._newest[0] == seen:
            return self._newest[1]
        pinned = pin(self._file, self._directory, self._context.operation_timeout_seconds)
        at = Position(f"{self._file_identity()}-{pinned.identity}", str(pinned.rev))
        if self._is_private and self._newest and self._newest[1] != at:
            path_of(self._directory, int(self._newest[1].at)).unlink(missing_ok=True)
        self._newest = seen, at
        return at

    @override
    def turn_to(self, view: View, at: Position) -> Position:
        _check_layout(view)
        self._view = view
        return at

    @override
    def plan(self, at: Position, rows: int) -> Iterator[Span]:
        check_rows(rows)
        with self._reading(at) as copy:
            root = self._root(copy)
            if self._view.layout is Layout.CLAIMS:
                yield Span(b"claims", 1)
                return
            for part in _ranges(self._view.under):
                yield from _spans(copy, root, part, rows)

    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        with self._reading(at) as copy:
            root = self._root(copy)
            if self._view.layout is Layout.CLAIMS:
                yield _claims(copy, root, self._view.under.encode())
                return
            yield from _pages(copy, root, _Range.of_token(span.token))

    @override
    def changes(self, after: Position, until: Position) -> Iterator[Sequence[Change]]:
        self._check_identity(after)
        with self._reading(until) as copy:
            seen = int(after.at)
            if after.store != until.store:
                raise PositionLostError(f"{self._file} was created again since revision {seen}")
            if seen > int(until.at) or _row(copy, _OLDEST)[0] > seen + 1:
                raise PositionLostError(
                    f"{self._file} no longer has the changes after revision {seen}: read it whole"
                )
            place = (seen, self._root(copy), KINDS[Kind.VALUE])
            changes = [change_of(*row) for row in _rows(copy, _CHANGES, place)]
            inside = _inside(self._view.under)
            yield [change for change in changes if inside(change.key)]

    @override
    def close(self) -> None:
        """Delete the copies, unless they are in the caller's directory."""
        self._closed = True
        with held_off.lock:
            for connection in list(self._connections):
                connection.close()
        self._drop()

    def _check_open(self) -> None:
        if os.getpid() != self._pid:
            raise LifecycleError("this scanner belongs to a parent process: open one here")
        if self._closed:
            raise ClosedError("this scanner is closed: open another one")

    def _file_identity(self) -> str:
        found = _found(self._file)
        if found is None:
            raise StoreError(f"{self._file} was removed while it was open: open it again")
        return f"{found.st_dev:x}-{found.st_ino:x}"

    def _check_identity(self, at: Position) -> None:
        # The number of a removed file may be given to the next one, so `changes` looks at the
        # database's own identity as well. A span is read from the right copy in any case.
        if at.store.rpartition("-")[0] != self._file_identity():
            raise PositionLostError(f"the position is of another database than {self._file}")

    @contextmanager
    def _reading(self, at: Position) -> Generator[sqlite3.Connection]:
        """Open the copy of *at* until the block ends."""
        self._check_open()
        self._check_identity(at)
        copy = path_of(self._directory, int(at.at))
        if not copy.is_file():
            raise PositionLostError(f"there is no copy of revision {at.at} in {self._directory}")
        with held_off.lock:
            connection = open_copy(copy)
        self._connections[connection] = None
        try:
            yield connection
        except sqlite3.Error as error:
            raise translate(error, copy) from error
        finally:
            with held_off.lock:
                connection.close()
            self._connections.pop(connection, None)

    def _root(self, copy: sqlite3.Connection) -> int:
        """Return the number of the namespace, or -1 for one that was never used."""
        row = _row(copy, _ROOT, (self._context.namespace.encode(),))
        return -1 if row is None else int(row[0])


def _check_layout(view: View) -> None:
    if view.layout is Layout.RAW:
        raise UnsupportedError("the embedded store holds nothing that kip30 did not write")


def _rows(copy: sqlite3.Connection, query: str, values: Sequence[Any] = ()) -> list[Any]:
    """Return all rows that *query* finds. Forks are held off meanwhile."""
    with held_off.lock:
        return copy.execute(query, values).fetchall()


def _row(copy: sqlite3.Connection, query: str, values: Sequence[Any] = ()) -> Any:
    """Return the first row that *query* finds, or None."""
    return next(iter(_rows(copy, query, values)), None)


def _remove(private: Path | None, pid: int) -> None:
    """Delete a directory of copies, but not in a forked child: the parent may be reading them."""
    if private is not None and os.getpid() == pid:
        shutil.rmtree(private, ignore_errors=True)


def _existing(directory: Path) -> Path:
    """Return the database of *directory*, with no link in its path."""
    file = directory.absolute() / DATABASE
    if not os.path.lexists(file):
        raise StoreError(f"there is no {file}: nothing has been stored there on this machine")
    return trusted_directory(directory.absolute()) / DATABASE


def _signature(file: Path) -> object:
    """Return a value that differs once a transaction was committed to *file*."""
    log = file.with_name(f"{file.name}-wal")
    return [
        found and (found.st_ino, found.st_mtime_ns, found.st_size)
        for found in map(_found, (file, log))
    ]


def _found(file: Path) -> os.stat_result | None:
    """Check *file* once: SQLite removes its log as soon as the last connection is closed."""
    try:
        return file.stat()
    except FileNotFoundError:
        return None


def _ranges(under: str) -> list[_Range]:
    if not under:
        return [_Range((b"", b""), (_AFTER_ALL, b""))]
    own = under.encode()
    below = _Range((own + b"/", b""), (own + b"0", b""))  # "0" follows "/"
    return [_Range((own, b""), (own, _AFTER_ALL)), below]


def _inside(under: str) -> Callable[[bytes], bool]:
    prefix = f"{under}/".encode()
    return lambda key: not under or key.startswith(prefix)


def _claims(copy: sqlite3.Connection, root: int, under: bytes) -> Page:
    page = claims_of(_rows(copy, _MEMBERS, (root,)), _rows(copy, _SERVICES, (root,)))
    return Page.of((row for row in page.rows if row.key.startswith(under)), page.rejected)


def _spans(copy: sqlite3.Connection, root: int, part: _Range, rows: int) -> Iterator[Span]:
    while cut := _row(copy, _CUT, (root, *part.after, *part.until, rows - 1)):
        yield Span(_Range(part.after, cut).token(), rows)
        part = part._replace(after=cut)
    (rest,) = _row(copy, _COUNT, (root, *part.after, *part.until))
    if rest:
        yield Span(part.token(), rest)


def _pages(copy: sqlite3.Connection, root: int, part: _Range) -> Iterator[Page]:
    size = PageSize()
    while True:
        asked = size.rows
        found = _rows(copy, _PAGE, (root, *part.after, *part.until, asked))
        if page := page_of(found):
            yield page
            size.adapt(page)
        if len(found) < asked:
            return
        namespace, _, name = found[-1][0].rpartition(b"/")
        part = part._replace(after=(namespace, name))
