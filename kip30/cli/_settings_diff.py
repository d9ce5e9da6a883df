"""The settings in which two properties files differ."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from kip30.cli._effective_settings import (
    EffectiveSetting,
    effective_settings,
    settings_classes,
    settled_values,
    typed,
)
from kip30.cli._output import Row
from kip30.config import (
    HIDDEN,
    CommonSettings,
    Properties,
    SettingRow,
    build,
    comparable,
    load,
    reference,
    refers,
)
from kip30.errors import ConfigError
from kip30.runtime.resolution import find_store

DIFFERENCE_TITLES = ("SETTING", "LEFT", "RIGHT", "LEFT FROM", "RIGHT FROM")
"""The titles of `Difference.fields`."""

_UNSET = "-"
_SESSION_TIMEOUT = "plugin.session.timeout.ms"


class Difference(NamedTuple):
    """A setting that has another value in each of two files; None where there is none."""

    key: str
    left: EffectiveSetting | None
    right: EffectiveSetting | None

    def fields(self) -> Row:
        """Return it as a row."""
        sides = (self.left, self.right)
        values = [(one and one.value) or _UNSET for one in sides]
        return self.key, *values, *(one.origin if one else _UNSET for one in sides)

    def record(self) -> Mapping[str, Any]:
        """Return it as an object."""
        named = {"left": self.left, "right": self.right}
        values = {name: one and typed(one.value, one.row.kind) for name, one in named.items()}
        origins = {f"{name}_origin": one and one.origin for name, one in named.items()}
        return {"key": self.key, **values, **origins}


class FileSettings(NamedTuple):
    """The settings of a file.

    Attributes:
        settings: Those that are known, by key, and keys that only a plugin knows.
        meanings: What is equal to that of another file if both mean the same, by key. It holds
            secrets.
        unchecked: Which keys are not known because a plugin was not loaded, and why.
    """

    settings: Mapping[str, EffectiveSetting]
    meanings: Mapping[str, object]
    unchecked: str


def read_settings(file: Path, *, load_plugins: bool) -> FileSettings:
    """Return the settings of *file*. Nothing that its values refer to is read.

    Raises:
        ConfigError: It cannot be read, has a key that is no setting, or a value that does not fit.
    """
    try:
        return _file_settings(load(file), load_plugins=load_plugins)
    except ConfigError as error:
        if str(file) in str(error):
            raise
        raise ConfigError(f"{file}: {error}") from error


def differences(left: FileSettings, right: FileSettings) -> Iterator[Difference]:
    """Yield the settings that differ, in the order of the reference."""
    for key in dict.fromkeys([*left.settings, *right.settings]):
        if left.meanings.get(key) != right.meanings.get(key):
            yield Difference(key, left.settings.get(key), right.settings.get(key))


def _file_settings(properties: Properties, *, load_plugins: bool) -> FileSettings:
    checked = find_store(properties, load_plugins=load_plugins)
    settled = settled_values(properties, checked, _computed(properties))
    known = effective_settings(properties, checked, settled)
    settings = {one.row.key: one for one in known}
    meanings: dict[str, object] = {}
    for declaring in settings_classes(checked):
        meanings |= comparable(declaring, properties, settled)
    if checked.unchecked:
        _add_undeclared(properties, settings, meanings)
    return FileSettings(settings, meanings, checked.unchecked)


def _computed(properties: Properties) -> Mapping[str, str]:
    """Return what follows from the common settings, as far as these are written out.

    Raises:
        ConfigError: They contradict each other.
    """
    if _SESSION_TIMEOUT in properties and refers(properties[_SESSION_TIMEOUT].text):
        return {}
    written_out = {key: one for key, one in properties.items() if not refers(one.text)}
    return build(CommonSettings, Properties(written_out)).computed


def _add_undeclared(
    properties: Properties, settings: dict[str, EffectiveSetting], meanings: dict[str, object]
) -> None:
    """Add the keys that a plugin declares which was not loaded: any of them may be a secret."""
    common = {key for row in reference(CommonSettings) for key in (row.key, *row.aliases)}
    for key, value in properties.items():
        if key not in common and not value.is_foreign:
            row = SettingRow(key, "text", "", "", (), secret=True)
            settings[key] = EffectiveSetting(row, HIDDEN, value.origin)
            meanings[key] = value.text.strip()
