"""Reading what the operator wrote.

Files are Java ``.properties`` in UTF-8, as Java tools have written them since Java 9; older ones
are pure ASCII with escapes and read the same. The last of several equal keys in a file counts.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import cast

from kip30.config.home import without_tilde
from kip30.config.properties import Properties, Value, Written, as_text
from kip30.config.safe_read import Contents, read
from kip30.config.trust import untrusted_here_reason
from kip30.errors import ConfigError

CONFIG_VARIABLE = "KIP30_CONFIG"
DEFAULT_NAME = "kip30.properties"
FURTHER_FILE = "plugin.configuration.file"
FILE_LIMIT = 1024 * 1024
"""Maximum size of a properties file, in bytes."""

_KAFKA_MARKS = frozenset({"broker.id", "broker.id.generation.enable", "node.id", "process.roles"})
# A broker that is given its id in another way, or generates it, has one of these at least.
_KAFKA_MARKS_BESIDE_ZOOKEEPER = frozenset({"listeners", "log.dir", "log.dirs"})
_KAFKA_TIMEOUTS = {
    "zookeeper.session.timeout.ms": "plugin.session.timeout.ms",
    "zookeeper.connection.timeout.ms": "plugin.connect.timeout.ms",
}
_DESCRIPTORS = (Path("/proc"), Path("/dev/fd"), Path("/dev/stdin"))
"""Names of files that the caller has open already."""
_LINE_END = re.compile(r"\r\n|\r|\n")


def load(
    source: str | Path | Mapping[str, Written] | None = None,
    *,
    origin: str = "mapping",
    may_wait: bool = True,
) -> Properties:
    """Read a configuration.

    A Kafka ``server.properties`` is understood: its ``plugin.*`` and ``zookeeper.*`` keys count,
    its others are left out. With ZooKeeper its timeouts count where ours are not set. A file may
    name one more in ``plugin.configuration.file``, which overrides it. Relative paths in a file
    begin at its folder, those in a mapping at the working directory; so do those in a file that is
    a pipe.

    Args:
        source: A file, a mapping, or None for `default_file`; without such a file nothing is
        configured.
        origin: How errors name the source of a mapping.
        may_wait: Whether a file that is named may be a pipe or a device, which is read to its end.
            If not, only a regular file: a pipe is empty to a caller that reads it again.

    Raises:
        ConfigError: A file that cannot be read or is not a properties file, or a key or value of
            a wrong type.
    """
    if isinstance(source, Mapping):
        return Properties({_key(key): Value(as_text(source[key], key), origin) for key in source})
    if source is not None:
        return _load_file(_path(source), may_wait=may_wait)
    file = default_file()
    if file is None:
        return Properties({})
    is_named = bool(os.environ.get(CONFIG_VARIABLE))
    return _load_file(file, is_named=is_named, may_wait=may_wait)


def entries(file: Path) -> Properties:
    """Return what is in a properties file of another program: no key has a meaning here.

    Values are as they are written, and hold no references. The file may be read again by the
    program, so it is no pipe.

    Raises:
        ConfigError: It cannot be read, is no regular file, or is not a properties file.
    """
    raw, _ = _contents(file, is_named=True, may_wait=False)
    return Properties(_parse(_decoded(raw, file), str(file)))


def default_file() -> Path | None:
    """Return ``$KIP30_CONFIG``, else ``kip30.properties`` in the working directory, else None."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    here = Path(DEFAULT_NAME)
    return here if os.path.lexists(here) else None


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"a key must be a str, not {type(key).__name__}: {key!r}")
    return key


def _path(source: str | Path) -> Path:
    given = cast("object", source)
    if isinstance(given, str | os.PathLike):
        return Path(source)
    raise ConfigError(
        f"a configuration is the path of a properties file or a mapping of its keys, not"
        f" {type(given).__name__}: {given!r:.60}"
    )


def _load_file(file: Path, *, is_named: bool = True, may_wait: bool) -> Properties:
    first = _read_file(file, is_named=is_named, may_wait=may_wait and is_named)
    named = first.pop(FURTHER_FILE, None)
    if named is None:
        return _with_kafkas_timeouts(Properties(first))
    if named.untrusted_reason:
        raise ConfigError(
            f"{FURTHER_FILE} ({named.origin}) reads a file, and another user may have written it:"
            f" {named.untrusted_reason}; name the other file with --config instead"
        )
    try:
        further = file.parent / without_tilde(Path(named.text.strip()))
    except RuntimeError as error:
        raise ConfigError(
            f"{FURTHER_FILE} ({named.origin}): no home directory for '~'; write the path in full"
        ) from error
    second = _read_file(further, is_named=True, may_wait=may_wait)
    if FURTHER_FILE in second:
        raise ConfigError(f"{FURTHER_FILE} ({second[FURTHER_FILE].origin}): only one is allowed")
    return _with_kafkas_timeouts(Properties(first) | Properties(second))


def _with_kafkas_timeouts(properties: Properties) -> Properties:
    """Return *properties* with a broker's timeouts of ZooKeeper, unless ours are set."""
    store = properties.get("plugin.backend")
    if store is not None and store.text.strip() != "zookeeper":
        return properties
    foreign = {
        ours: properties[theirs]
        for theirs, ours in _KAFKA_TIMEOUTS.items()
        if theirs in properties and properties[theirs].is_foreign
    }
    return Properties(foreign) | properties


def _read_file(file: Path, *, is_named: bool, may_wait: bool) -> dict[str, Value]:
    raw, untrusted_reason = _contents(file, is_named=is_named, may_wait=may_wait)
    values = _parse(_decoded(raw, file), str(file))
    kept = _out_of_kafka(values) if _is_kafka(values) else values
    folder = _folder(file)
    return {
        key: replace(one, untrusted_reason=untrusted_reason, folder=folder)
        for key, one in kept.items()
    }


def _folder(file: Path) -> Path | None:
    """Return where relative paths in *file* begin; None if no folder of its own holds it.

    A link is not followed: what is mounted into a container is a link to a folder that changes its
    name with each update.
    """
    path = file.absolute()
    if any(map(path.is_relative_to, _DESCRIPTORS)) or not path.is_file():
        return None
    return path.parent


def _contents(file: Path, *, is_named: bool, may_wait: bool) -> Contents:
    """Read *file*; one that was not named is refused if another user could have written it."""
    try:
        contents = read(file, FILE_LIMIT, may_wait=may_wait)
        untrusted_reason = contents.untrusted_reason or (
            "" if is_named else untrusted_here_reason(file)
        )
    except ValueError as error:  # a NUL character in the path
        raise ConfigError(f"cannot read the configuration file {str(file)!r}: {error}") from error
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error.strerror}") from error
    if untrusted_reason and not is_named:
        raise ConfigError(
            f"{file.absolute()} is refused: {untrusted_reason}; a file that is not named must"
            f" belong to you or root, and no other user may write it or its folder: correct that"
            f" with chown and chmod, or name the file with --config or ${CONFIG_VARIABLE}"
        )
    return contents


def _decoded(raw: bytes, file: Path) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{file}:{line}: not UTF-8; save the file as UTF-8 or write \\uXXXX"
        ) from None


def _parse(content: str, name: str) -> dict[str, Value]:
    javaproperties = import_module("javaproperties")  # late: slower to import than all of kip30
    values: dict[str, Value] = {}
    line = 1
    try:
        for element in javaproperties.parse(content):
            if isinstance(element, javaproperties.KeyValue):
                values[element.key] = Value(element.value, f"{name}:{line}")
            line += len(_LINE_END.findall(element.source))
    except ValueError:
        raise ConfigError(f"{name}:{line}: \\u takes four hex digits, as in \\u00e9") from None
    return values


def _is_kafka(keys: Mapping[str, Value]) -> bool:
    if _KAFKA_MARKS & keys.keys():
        return True
    return "zookeeper.connect" in keys and bool(_KAFKA_MARKS_BESIDE_ZOOKEEPER & keys.keys())


def _out_of_kafka(values: Mapping[str, Value]) -> dict[str, Value]:
    plugin = {key: value for key, value in values.items() if key.startswith("plugin.")}
    zookeeper = {
        key: replace(value, is_foreign=True)
        for key, value in values.items()
        if key.startswith("zookeeper.")
    }
    return plugin | zookeeper
