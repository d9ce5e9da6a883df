"""Checks of owner, mode and links: no other user may direct kip30 to files of their choice.

SQLite and the kernel follow links. In a directory that another user prepared, the doorbell could be
any file of this user, and the folder of sessions any folder. The directory is checked first: if
only this user and root may write it, its entries cannot change after they are checked. The
directories above it are trusted, because their owners decide where this one is.
"""

import os
import stat
from pathlib import Path

from kip30.errors import StoreError

_ROOT = 0


def trusted_directory(directory: Path) -> Path:
    """Return the real path of *directory*, which may itself be a link of this user or of root.

    Raises:
        StoreError: Another user owns it, or the link to it, or may write it.
    """
    link = directory.lstat()
    if stat.S_ISLNK(link.st_mode):
        _refuse_strange_owner(directory, link)
    real = directory.resolve()
    _refuse_strangers(real, real.stat())
    return real


def refuse_untrusted(path: Path) -> os.stat_result | None:
    """Raise if *path*, in a trusted directory, is a link or may be changed by another user.

    Returns:
        What is at *path*, or None if it is missing.

    Raises:
        StoreError: It is, or may.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise StoreError(f"{path} is a symbolic link, which is not followed: move it away")
    _refuse_strangers(path, found)
    return found


def refuse_untrusted_file(path: Path) -> None:
    """Raise as `refuse_untrusted` does, and if *path* is there but is not a regular file.

    It is looked at once: SQLite removes its log as soon as the last connection is closed.
    """
    found = refuse_untrusted(path)
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is not a file: move it away")


def _refuse_strangers(path: Path, found: os.stat_result) -> None:
    _refuse_strange_owner(path, found)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StoreError(
            f"{path} can be written by other users: `chmod go-w {path}` if you trust what is there,"
            " or name another directory"
        )


def _refuse_strange_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in {os.geteuid(), _ROOT}:
        raise StoreError(
            f"{path} belongs to user {found.st_uid}: run as that user, or name another directory"
        )
