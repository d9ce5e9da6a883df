"""Conversion of errors of SQLite and the system to kip30's: one table of what is certain."""

import errno
import os
import sqlite3
from pathlib import Path

from kip30.driver.kit import descriptor_limit
from kip30.errors import (
    ClosedError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)

_WAITING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_SYMPTOMS = {
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_FULL,
}
_ENOUGH_BYTES = 64 * 1024
_ADVICE = {
    sqlite3.SQLITE_NOTADB: "is not a SQLite database: move it away or name another directory",
    sqlite3.SQLITE_CORRUPT: "is damaged: move it away, or restore it from a copy",
    sqlite3.SQLITE_READONLY: "cannot be written: check its owner, its mode and its file system",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: check owner and mode of it and its directory",
    sqlite3.SQLITE_PERM: "cannot be opened: check owner and mode of it and its directory",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error",
}


def is_busy(error: BaseException) -> bool:
    """Return whether another connection held the lock, so that a retry makes sense."""
    return isinstance(error, sqlite3.OperationalError) and _code(error) in _WAITING


def is_full(error: BaseException) -> bool:
    """Return whether the file or its log could not grow; then nothing was done."""
    return isinstance(error, sqlite3.Error) and _code(error) == sqlite3.SQLITE_FULL


def raised_by_program(error: BaseException) -> bool:
    """Return whether *error* is an `OSError` of the program, raised by a signal handler of its own.

    A signal handler may raise `TimeoutError`, which is one, in the middle of any call. It says
    nothing about the file, and the call may have had its effect.
    """
    is_ours = isinstance(error, Kip30Error)
    return isinstance(error, OSError) and error.errno is None and not is_ours


def changed_nothing(error: BaseException) -> bool:
    """Return whether a write that raised *error* certainly had no effect."""
    if isinstance(error, OutcomeUnknownError) or raised_by_program(error):
        return False
    return isinstance(error, (Kip30Error, sqlite3.Error, OSError))


def translate(error: Kip30Error | sqlite3.Error | OSError, file: Path) -> Kip30Error:
    """Return kip30's error for *error*, raised while nothing of *file* was changed."""
    if isinstance(error, Kip30Error):
        return error
    translated = _translated(error, file)
    translated.__cause__ = error
    return translated


def translate_commit(error: sqlite3.Error, file: Path) -> Kip30Error:
    """Return kip30's error for *error*, raised by a commit to *file*."""
    if _code(error) in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY, *_WAITING}:
        return translate(error, file)
    return OutcomeUnknownError(f"the commit to {file} failed ({error}): read before trying again")


def no_turn(file: Path) -> str:
    """Return the message for a write whose turn in this process did not come."""
    return (
        f"other threads of this process were writing to {file} for the whole timeout,"
        f" or waited for another program (`fuser {file}` shows it): nothing was written"
    )


def stayed_locked(file: Path) -> str:
    """Return the message for an attempt that found *file* locked until its deadline."""
    return (
        f"{file} stayed locked by another program for the whole timeout:"
        f" find the program with `fuser {file}`"
    )


def _translated(error: sqlite3.Error | OSError, file: Path) -> Kip30Error:
    if isinstance(error, sqlite3.ProgrammingError):
        return ClosedError("closed while the operation was under way")
    if is_busy(error):
        return UnavailableError(stayed_locked(file))
    trouble = _shortage(error)
    if not trouble and _may_be_the_file_systems(error):
        trouble = _file_system_trouble(file.parent)
    if trouble:
        return StoreError(f"{trouble} ({error})")
    if isinstance(error, sqlite3.Error):
        return StoreError(f"{file} {_ADVICE.get(_code(error), 'cannot be used')} ({error})")
    name = error.filename or file
    return StoreError(f"{name} cannot be used: {os.strerror(error.errno or 0)}")


def _shortage(error: sqlite3.Error | OSError) -> str:
    """Return which limit on open files was met; SQLite only knows that it cannot open a file."""
    if isinstance(error, OSError):
        return descriptor_limit.named(error)
    return descriptor_limit.shortage() if _code(error) in _SYMPTOMS else ""


def _may_be_the_file_systems(error: sqlite3.Error | OSError) -> bool:
    if isinstance(error, sqlite3.Error):
        return _code(error) in _SYMPTOMS
    return error.errno in {errno.EROFS, errno.ENOSPC}


def _file_system_trouble(directory: Path) -> str:
    """Return the file system's own error where SQLite only knows that it failed."""
    try:
        system = os.statvfs(directory)
    except OSError:
        return ""
    if system.f_flag & os.ST_RDONLY:
        return f"{directory} is on a read-only file system"
    if system.f_blocks and system.f_bavail * system.f_frsize < _ENOUGH_BYTES:
        return f"no space left on the file system of {directory}: free some"
    return ""


def _code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF
