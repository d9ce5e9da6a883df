"""Makes settings from properties, and reports the mistakes that prevent it."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kip30.config.expansion import expand, refers, refers_to_file, refers_to_relative_file
from kip30.config.parsers import path
from kip30.config.properties import Properties, Value, as_text
from kip30.config.secrets import Secret
from kip30.config.settings import Declaration, declarations
from kip30.config.suggestions import did_you_mean
from kip30.config.trust import TRUSTED_VARIABLE
from kip30.errors import ConfigError

T = TypeVar("T")

_STORES = frozenset({"cassandra", "consul", "embedded", "etcd", "zookeeper"})
"""Stores whose keys may be in a file although they are not installed."""

_REMEDY = ": remove it; `kip30 config` lists all settings"

_NOTHING: tuple[object, ...] = ("", ())
"""Values that mean that there is none."""

HIDDEN = "***"
"""The text shown in place of a secret."""

_CREDENTIALS = re.compile(r"^((?:[A-Za-z][A-Za-z0-9+.-]*://)?).*(?=@)", re.DOTALL)
"""The user and the password of a URL, which an address may have been written as.

A password may hold any character, also slashes and commas, so all before the last ``@`` counts.
"""


def build(settings_class: type[T], properties: Properties) -> T:
    """Return the settings that *properties* give; other keys are ignored.

    Raises:
        ConfigError: A setting is missing, has another value under each of two names, cannot be
            read, or contradicts another one.
    """
    return settings_class(
        **{
            declaration.name: _value(declaration, keys, properties)
            for declaration in declarations(settings_class)
            if (keys := _required_keys(declaration, properties))
        }
    )


def effective(settings_class: type[Any], properties: Properties) -> Mapping[str, str]:
    """Return the effective value of each setting, as text without secrets.

    One that is required and missing has the text of one that has no default.
    """
    return {
        declaration.key: _shown(declaration, properties)
        for declaration in declarations(settings_class)
    }


def comparable(
    settings_class: type[Any], properties: Properties, settled: Mapping[str, str]
) -> Mapping[str, object]:
    """Return for each setting what is equal to that of another configuration if both mean the same.

    It is None if there is no value. Nothing is read for that: values with references are equal if
    they are written alike, and a relative file in them begins at the same folder. The result holds
    secrets.

    Args:
        settings_class: The settings.
        properties: What is written.
        settled: Values by key that count instead, written as an operator would.

    Raises:
        ConfigError: A value cannot be read, or a setting has another value under each of two names.
    """
    found: dict[str, object] = {}
    for one in declarations(settings_class):
        if one.key in settled:
            value = _default_read(one, settled[one.key])
        else:
            value = _comparable(one, properties)
        found[one.key] = None if value in _NOTHING else value
    return found


def check_keys(
    properties: Properties, settings_classes: Iterable[type[Any]], *, other_stores: Collection[str]
) -> None:
    """Refuse keys that belong to none of *settings_classes*.

    Those of *other_stores*, and of well-known ones, pass, so that one file can serve several.

    Raises:
        ConfigError: Some key is not known; the message names the nearest known one.
    """
    known = {key for cls in settings_classes for one in declarations(cls) for key in one.keys}
    in_use = {key.removeprefix("plugin.").partition(".")[0] for key in known}
    others = {*other_stores, *(_STORES - in_use)}
    tolerated = tuple(f"{prefix}{name}." for name in others for prefix in ("plugin.", ""))
    unknown = [
        f"{key} ({value.origin}) is not a setting{did_you_mean(key, known) or _REMEDY}"
        for key, value in properties.items()
        if not (key in known or value.is_foreign or key.startswith(tolerated))
    ]
    if unknown:
        raise ConfigError("\n".join(unknown))


def _required_keys(declaration: Declaration, properties: Properties) -> list[str]:
    """Return the keys *declaration* is written under; a required one is under one at least."""
    written = _written_keys(declaration, properties)
    if not written and declaration.default is None:
        raise ConfigError(f"{declaration.key} is missing: set it ({declaration.doc})")
    return written


def _written_keys(declaration: Declaration, properties: Properties) -> list[str]:
    """Return the keys *declaration* is written under; the first one is used."""
    return [key for key in declaration.keys if key in properties]


def _value(declaration: Declaration, keys: Sequence[str], properties: Properties) -> Any:
    """Return the value of *declaration*, which must be the same under each of *keys*."""
    return _only(keys, [_read(declaration, key, properties[key]) for key in keys])


def _comparable(declaration: Declaration, properties: Properties) -> object:
    keys = _written_keys(declaration, properties)
    if keys:
        return _only(keys, [_unexpanded(declaration, key, properties[key]) for key in keys])
    return _default_read(declaration, _default_text(declaration))


def _unexpanded(declaration: Declaration, key: str, value: Value) -> object:
    if not refers(value.text):
        return _parsed(declaration, key, value)
    return value.text.strip(), value.folder if refers_to_relative_file(value.text) else None


def _default_read(declaration: Declaration, text: str) -> object:
    """Return the value of a default, or its text if that describes how it is computed."""
    try:
        return declaration.parser.read(text)
    except ValueError:
        return text


def _only(keys: Sequence[str], values: Sequence[Any]) -> Any:
    """Return the value that a setting has under each of *keys*."""
    first, *others = values
    if any(other != first for other in others):
        raise ConfigError(
            f"{' and '.join(keys)} mean the same and have different values: keep {keys[0]}"
        )
    return first


def _read(declaration: Declaration, key: str, value: Value) -> Any:
    _require_allowed(declaration, key, value)
    first = _parsed(declaration, key, value)
    if isinstance(first, Secret) and refers_to_file(value.text):
        return Secret(first.current(), lambda: _parsed(declaration, key, value).current())
    return first


def _parsed(declaration: Declaration, key: str, value: Value) -> Any:
    written = expand(value, f"{key} ({value.origin})")
    written = written if declaration.secret else written.strip()
    try:
        return declaration.placed(declaration.parser.read(written), value)
    except ValueError as error:
        complaint = str(error)
    # Raised out here to be free of the parser's error, which may hold the value.
    if _is_hidden(declaration, value):
        written, complaint = HIDDEN, f"does not read as {declaration.parser.kind}"
    else:
        written = repr(_CREDENTIALS.sub(rf"\g<1>{HIDDEN}", written))
    raise ConfigError(f"{key} = {written} ({value.origin}): {complaint}")


def _require_allowed(declaration: Declaration, key: str, value: Value) -> None:
    """Refuse a value that could do harm, before it is used."""
    where = f"{key} ({value.origin})"
    if value.untrusted_reason and (declaration.names_code_or_files or refers(value.text)):
        raise ConfigError(
            f"{where} runs code or reads files, and another user may have written it:"
            f" {value.untrusted_reason}; give it with --set, or name the owner in"
            f" ${TRUSTED_VARIABLE}"
        )
    if declaration.literal and refers(value.text):
        raise ConfigError(f"{where} must be written out, not taken from ${{...}}")
    if declaration.in_errors and refers_to_file(value.text):
        raise ConfigError(f"{where} must not be taken from a file: errors show it")


def _shown(declaration: Declaration, properties: Properties) -> str:
    for key in _written_keys(declaration, properties):
        value = properties[key]
        if _is_hidden(declaration, value):
            return HIDDEN
        return _placed(value) if declaration.parser is path else value.text.strip()
    return _default_text(declaration)


def _default_text(declaration: Declaration) -> str:
    if declaration.compute:
        return as_text(declaration.compute(), declaration.key)
    return declaration.default or ""


def _placed(value: Value) -> str:
    written = value.text.strip()
    return written if written.startswith("~") else str(value.place(Path(written)))


def _is_hidden(declaration: Declaration, value: Value) -> bool:
    return declaration.secret or refers(value.text)
