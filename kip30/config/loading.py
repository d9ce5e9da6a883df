"""Reading what the operator wrote.

Files are Java ``.properties`` in UTF-8, as Java tools have written them since Java 9; older ones
are pure ASCII with escapes and read the same. The last of several equal keys in a file counts.
"""

import os
import re
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from kip30.config.properties import Properties, Value, Written, as_text
from kip30.errors import ConfigError

CONFIG_VARIABLE = "KIP30_CONFIG"
DEFAULT_NAME = "kip30.properties"
FURTHER_FILE = "plugin.configuration.file"

_KAFKA_MARKS = frozenset({"broker.id", "node.id", "process.roles"})
_LINE_END = re.compile(r"\r\n|\r|\n")


def load(
    source: str | Path | Mapping[str, Written] | None = None, *, origin: str = "mapping"
) -> Properties:
    """Read a configuration.

    A Kafka ``server.properties`` is understood: its ``plugin.*`` and ``zookeeper.*`` keys count,
    its others are left out. A file may name one more in ``plugin.configuration.file``, relative
    to itself, which overrides it.

    Args:
        source: A file, a mapping, or None for `default_file`; without one nothing is configured.
        origin: What errors call the place a mapping came from.

    Raises:
        ConfigError: A file that cannot be read or is not a properties file, or a key or value of
            a wrong type.
    """
    if source is None:
        source = default_file() or {}
    if isinstance(source, Mapping):
        return Properties({_key(key): Value(as_text(source[key], key), origin) for key in source})
    return _load_file(Path(source))


def default_file() -> Path | None:
    """Return ``$KIP30_CONFIG``, else ``kip30.properties`` in the working directory, else None."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named:
        return Path(named)
    here = Path(DEFAULT_NAME)
    return here if here.exists() else None


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise ConfigError(f"a key must be a str, not {type(key).__name__}: {key!r}")
    return key


def _load_file(file: Path) -> Properties:
    first = _read_file(file)
    named = first.pop(FURTHER_FILE, None)
    if named is None:
        return Properties(first)
    second = _read_file(file.parent / Path(named.text.strip()).expanduser())
    if FURTHER_FILE in second:
        raise ConfigError(f"{FURTHER_FILE} ({second[FURTHER_FILE].origin}): one such file is all")
    return Properties(first) | Properties(second)


def _read_file(file: Path) -> dict[str, Value]:
    values = _parse(_read_text(file), str(file))
    return _out_of_kafka(values) if _is_kafka(values) else values


def _read_text(file: Path) -> str:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {file}: {error.strerror}") from error
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
    return bool(_KAFKA_MARKS & keys.keys()) or {"zookeeper.connect", "log.dirs"} <= keys.keys()


def _out_of_kafka(values: Mapping[str, Value]) -> dict[str, Value]:
    plugin = {key: value for key, value in values.items() if key.startswith("plugin.")}
    zookeeper = {
        key: Value(value.text, value.origin, borrowed=True)
        for key, value in values.items()
        if key.startswith("zookeeper.")
    }
    return plugin | zookeeper
