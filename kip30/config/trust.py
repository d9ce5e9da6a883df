"""Detection of files that other users of the machine could have written.

A properties file names code to run and files to read, so its writer acts as the user who
reads it. A file is trusted if its owner is the effective user, root, or one of the users in
``$KIP30_TRUSTED_USERS``, and no one else may write it. A group may write it only if it is the
private group of a trusted user, as distributions with a umask of 002 make them: a group of the
user's name, that is the user's primary group and has no other member.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from kip30.errors import ConfigError

TRUSTED_VARIABLE = "KIP30_TRUSTED_USERS"
"""Names or numbers of further users whose files are trusted, separated by commas."""

_ROOT = 0
_ACL = "system.posix_acl_access"


def untrusted_reason(path: Path, status: os.stat_result, source: int | Path) -> str:
    """Return why other users could have written *path*, or nothing if they could not.

    A directory with the sticky bit is trusted although others may write it: they can neither
    remove nor rename in it what is not their own.

    Args:
        path: Its name, for the answer.
        status: Its status.
        source: Its descriptor, or its name, to ask for its access control list.

    Raises:
        ConfigError: ``$KIP30_TRUSTED_USERS`` names a user that does not exist.
    """
    users = _trusted_users()
    mode = f"mode {stat.S_IMODE(status.st_mode):04o}"
    if status.st_uid not in users:
        return f"{path} belongs to {_user(status.st_uid)}, {mode}"
    if stat.S_ISLNK(status.st_mode) or _is_sticky(status.st_mode):
        return ""
    if status.st_mode & stat.S_IWOTH:
        return f"every user may write {path}, {mode}"
    if status.st_mode & stat.S_IWGRP and not _is_private(status.st_gid, users, source):
        return f"the group {_group(status.st_gid)} may write {path}, {mode}"
    return ""


def untrusted_here_reason(file: Path) -> str:
    """Return why other users could have put *file* where it is, or nothing if they could not."""
    folder = file.absolute().parent
    return untrusted_reason(folder, folder.stat(), folder) or untrusted_reason(
        file, file.lstat(), file
    )


def untrusted_chain_reason(path: Path) -> str:
    """Return why other users could put something else in the place of *path*, or nothing.

    This looks at every directory above it. After an empty answer no other user can change what
    *path* leads to, so it may be opened again by its name.
    """
    real = path.resolve()
    steps = (untrusted_reason(one, one.lstat(), one) for one in (*reversed(real.parents), real))
    return next(filter(None, steps), "")


def untrusted_tree_reason(root: Path) -> str:
    """Return why other users could have written something in *root*, or nothing."""
    steps = (_untrusted_within_reason(one) for one in _below(root))
    return untrusted_chain_reason(root) or next(filter(None, steps), "")


def _untrusted_within_reason(path: Path) -> str:
    try:
        status = path.lstat()
    except FileNotFoundError:  # Python renames each compiled file that it has written
        return ""
    if not stat.S_ISLNK(status.st_mode):
        return untrusted_reason(path, status, path)
    return untrusted_reason(path, status, path) or (
        untrusted_chain_reason(path) if path.exists() else ""
    )


def _below(root: Path) -> Iterator[Path]:
    """Yield everything in *root*; a link to a directory yields the content of that."""
    seen = set[str]()
    for folder, folders, files in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(folder, name) for name in (*folders, *files))


def _trusted_users() -> frozenset[int]:
    named = os.environ.get(TRUSTED_VARIABLE, "")
    further = (_number(name.strip()) for name in named.split(",") if name.strip())
    return frozenset({_ROOT, os.geteuid(), *further})


def _number(name: str) -> int:
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ConfigError(f"{TRUSTED_VARIABLE}: there is no user {name!r}") from None


def _is_sticky(mode: int) -> bool:
    return stat.S_ISDIR(mode) and bool(mode & stat.S_ISVTX)


def _is_private(gid: int, users: frozenset[int], source: int | Path) -> bool:
    """Return whether only trusted *users* are in group *gid*, and no access list adds others.

    Where there is an access list, the bits of the group are those of everyone in the list.
    """
    return not _has_access_list(source) and any(_is_own_group(gid, uid) for uid in users)


def _is_own_group(gid: int, uid: int) -> bool:
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(uid)
    except KeyError:
        return False
    is_own = (user.pw_gid, user.pw_name) == (gid, group.gr_name)
    return is_own and {*group.gr_mem} <= {user.pw_name}


def _has_access_list(source: int | Path) -> bool:
    if not hasattr(os, "listxattr"):
        return False
    try:
        return _ACL in os.listxattr(source)
    except OSError:
        return False  # The file system keeps none.


def _user(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"


def _group(gid: int) -> str:
    try:
        return f"{grp.getgrgid(gid).gr_name} (gid {gid})"
    except KeyError:
        return f"gid {gid}"
