"""``${env:NAME}`` and ``${file:/path}`` in a value: secrets that stay out of the file.

A relative path begins where those of the value do (`Value.folder`). The result is not expanded
again. The newline at the end of a file is dropped. A file must be a regular one of at most
`FILE_LIMIT` bytes, and no other user may be able to write it.
"""

import os
import re
from contextlib import suppress
from pathlib import Path

from kip30.config.home import without_tilde
from kip30.config.properties import Value
from kip30.config.safe_read import read
from kip30.config.trust import TRUSTED_VARIABLE
from kip30.errors import ConfigError

FILE_LIMIT = 64 * 1024
"""Maximum size of a referenced file, in bytes."""

_REFERENCE = re.compile(r"\$\{([^}]*)(\}?)")


def refers(written: str) -> bool:
    """Return whether *written* contains a reference."""
    return "${" in written


def only_refers(written: str) -> bool:
    """Return whether *written* consists of references only."""
    return bool(written) and not _REFERENCE.sub("", written)


def refers_to_file(written: str) -> bool:
    """Return whether *written* contains a reference to a file."""
    return "${file:" in written


def refers_to_relative_file(written: str) -> bool:
    """Return whether *written* contains a reference to a file by a relative path."""
    return bool(re.search(r"\$\{file:(?![/~])", written))


def expand(value: Value, where: str) -> str:
    """Return the text of *value* with each reference replaced. *where* names the key in errors.

    Raises:
        ConfigError: The variable is not set, the file cannot be read, or it is no such reference.
    """
    return _REFERENCE.sub(lambda found: _resolve(found, value, where), value.text)


def _resolve(found: re.Match[str], value: Value, where: str) -> str:
    scheme, colon, name = found[1].partition(":")
    if not (colon and name and found[2]) or scheme not in {"env", "file"}:
        raise ConfigError(f"{where}: write ${{env:NAME}} or ${{file:/path}}")
    return _variable(name, where) if scheme == "env" else _content(name, value, where)


def _variable(name: str, where: str) -> str:
    try:
        value = os.environ.get(name)
    except UnicodeEncodeError:  # no variable can have such a name
        value = None
    if value is None:
        raise ConfigError(f"{where}: the environment variable {name} is not set")
    return value


def _content(name: str, value: Value, where: str) -> str:
    try:
        raw, untrusted_reason = read(value.place(without_tilde(Path(name))), FILE_LIMIT)
    except (OSError, RuntimeError, ValueError) as error:  # ValueError: a NUL character
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{where}: cannot read the file {name}: {reason}") from error
    if untrusted_reason:
        raise ConfigError(
            f"{where}: {untrusted_reason}: deny other users write access, or name its owner in"
            f" ${TRUSTED_VARIABLE}"
        )
    # Not chained: a decoding error carries the content.
    with suppress(UnicodeDecodeError):
        return raw.decode().removesuffix("\n").removesuffix("\r")
    raise ConfigError(f"{where}: the file {name} is not UTF-8 text")
