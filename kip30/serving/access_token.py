"""The token that a client must send, as ``Authorization: Bearer TOKEN``."""

import hmac
import os
import re
import secrets
import stat
from pathlib import Path

from kip30.errors import UsageError

LEAST_LENGTH = 16
_RANDOM_BYTES = 24
_MOST_BYTES = 4096
# Nothing that a URL or a header would need in another form.
_TOKEN = re.compile(rb"[A-Za-z0-9._~-]{%d,256}" % LEAST_LENGTH)
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class AccessToken:
    """A token; its repr does not show it."""

    def __init__(self, text: str | None = None) -> None:
        """Use *text*, else a random one."""
        self.text: str = text or secrets.token_urlsafe(_RANDOM_BYTES)

    def is_in(self, field: str | None) -> bool:
        """Return whether the *field* ``Authorization`` has it, in a time that tells no part of it.

        None: the request has no such field.
        """
        scheme, _, given = (field or "").partition(" ")
        is_equal = hmac.compare_digest(given.strip(" ").encode(), self.text.encode())
        return is_equal and scheme.lower() == "bearer"


def read_token(file: Path) -> AccessToken:
    """Return the token in *file*, which has nothing else but white space around it.

    Raises:
        UsageError: It is no regular file, other users may read or write it, or it holds no token.
        OSError: It cannot be read.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as stream:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise UsageError(f"{str(file)!r} is no regular file, as the file of a token must be")
        if mode & _OTHERS:
            raise UsageError(
                f"other users may use {str(file)!r}, which holds a token: `chmod 600` it"
            )
        found = _TOKEN.fullmatch(stream.read(_MOST_BYTES).strip())
    if found is None:
        raise UsageError(
            f"{str(file)!r} holds no token: write {LEAST_LENGTH} to 256 letters, digits, or any of"
            " '-._~', and nothing else"
        )
    return AccessToken(found[0].decode())
