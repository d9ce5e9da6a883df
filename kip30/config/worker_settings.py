"""A configuration to send to other machines: as it is written, and without secrets."""

from typing import Any

from kip30.config.expansion import only_refers, refers_to_file
from kip30.config.parsers import PATH_KINDS
from kip30.config.plugin import CommonSettings
from kip30.config.properties import Properties
from kip30.config.settings import SettingRow, reference
from kip30.errors import ConfigError


def worker_settings(properties: Properties, settings_class: type[Any]) -> dict[str, str]:
    """Return the settings of *properties* by key, as they are written, references unexpanded.

    Keys of other stores and of other programs, which may be secrets that nothing here knows as
    such, are left out. The receiver expands references in its own environment.

    Args:
        properties: What the operator wrote.
        settings_class: The settings of the store that it chooses.

    Raises:
        ConfigError: A secret is written out, even in part; the message names the key, and says
            what to write instead.
    """
    rows = _rows_by_key(settings_class)
    kept = {key: one.text for key, one in properties.items() if key in rows}
    for key, text in kept.items():
        if rows[key].secret and not only_refers(text):
            raise ConfigError(
                f"{key} ({properties[key].origin}) is a secret and is written out, so it may not"
                " leave this machine: write ${env:NAME} or ${file:/path}, and provide that there"
            )
    return kept


def folders(properties: Properties, settings_class: type[Any]) -> dict[str, str]:
    """Return the folders at which relative paths in `worker_settings` begin, by key."""
    rows = _rows_by_key(settings_class)
    return {
        key: str(one.folder)
        for key, one in properties.items()
        if key in rows and one.folder and (rows[key].kind in PATH_KINDS or refers_to_file(one.text))
    }


def _rows_by_key(settings_class: type[Any]) -> dict[str, SettingRow]:
    rows = [*reference(CommonSettings), *reference(settings_class)]
    return {key: row for row in rows for key in (row.key, *row.aliases)}
