"""The settings of a configuration in use: their values, without secrets, and their origins."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from kip30.config import CommonSettings, Properties, SettingRow, boolean, effective, reference
from kip30.runtime.resolution import Checked

_STORE = "plugin.backend"
_NUMBERS = ("milliseconds", "number,")


class EffectiveSetting(NamedTuple):
    """A setting that is known, its value as text, empty if it has none, and where that is from."""

    row: SettingRow
    value: str
    origin: str


def settings_classes(checked: Checked) -> list[type[Any]]:
    """Return what declares the settings: of every store, and of the one that is chosen."""
    own = [] if checked.backend is None else [checked.backend.settings_class]
    return [CommonSettings, *own]


def settled_values(
    properties: Properties, checked: Checked, computed: Mapping[str, str]
) -> dict[str, str]:
    """Return the values by key that are not written, and follow from others."""
    settled = {key: value for key, value in computed.items() if key not in properties}
    if checked.backend is not None:
        settled[_STORE] = checked.backend.name
    return settled


def effective_settings(
    properties: Properties, checked: Checked, settled: Mapping[str, str]
) -> Iterator[EffectiveSetting]:
    """Yield each setting that is known."""
    origins: dict[str, str] = {}
    if checked.backend is not None:
        origins[_STORE] = f"default: {checked.reason}" if checked.is_default else checked.reason
    for one in settings_classes(checked):
        values = {**effective(one, properties), **settled}
        for row in reference(one):
            origin = origins.get(row.key) or _origin(row, properties)
            yield EffectiveSetting(row, values[row.key], origin)


def typed(value: str | None, kind: str) -> str | int | bool | None:
    """Return *value* as JSON has it: a number or a truth value where the setting is one."""
    if not value:
        return None
    if kind.startswith(_NUMBERS) and value.isdecimal():
        return int(value)
    return value == "true" if kind == boolean.kind and value in {"true", "false"} else value


def _origin(row: SettingRow, properties: Properties) -> str:
    for key in (row.key, *row.aliases):
        if key in properties:
            origin = properties[key].origin
            return origin if key == row.key else f"{key} ({origin})"
    return "default"
