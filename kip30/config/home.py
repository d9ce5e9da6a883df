"""The user's home directory, as everything here that names it finds it."""

import os
import pwd
from pathlib import Path


def home() -> Path:
    """Return ``$HOME``; if that is empty, relative or not set, what the user database says.

    Raises:
        RuntimeError: The user has no home directory there either.
    """
    named = os.environ.get("HOME", "")
    if not named.startswith("/"):
        try:
            named = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            named = ""
    if not named.startswith("/"):
        raise RuntimeError("Could not determine home directory.")
    return Path(named)


def without_tilde(path: Path) -> Path:
    """Return *path* with a ``~`` or ``~USER`` at its beginning replaced by a home directory.

    Raises:
        RuntimeError: There is no such home directory.
    """
    if path.parts[:1] == ("~",):
        return home().joinpath(*path.parts[1:])
    return path.expanduser()
