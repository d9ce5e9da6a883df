"""Configuration: Java properties in, frozen typed settings out, before any I/O with a store.

A store declares its settings as a dataclass whose fields are `setting`s; `load` reads what the
operator wrote, `build` makes the dataclass of it, and every mistake is a `ConfigError` that names
the key, where it was written and what to write instead. No value that is secret, or came from the
environment or another file, appears in an error or a repr.
"""

from kip30.config.expansion import refers
from kip30.config.home import home
from kip30.config.loading import default_file, entries, load
from kip30.config.parsers import (
    Address,
    Parser,
    addresses,
    boolean,
    choice,
    integer,
    milliseconds,
    path,
    paths,
    text,
)
from kip30.config.plugin import MAX_PRIORITY, CommonSettings
from kip30.config.properties import Properties, Value, Written
from kip30.config.secrets import Secret, secret
from kip30.config.settings import SettingRow, reference, setting
from kip30.config.settings_builder import HIDDEN, build, check_keys, comparable, effective
from kip30.config.suggestions import did_you_mean
from kip30.config.trust import TRUSTED_VARIABLE, untrusted_chain_reason, untrusted_tree_reason
from kip30.config.worker_settings import folders, worker_settings

__all__ = [
    "HIDDEN",
    "MAX_PRIORITY",
    "TRUSTED_VARIABLE",
    "Address",
    "CommonSettings",
    "Parser",
    "Properties",
    "Secret",
    "SettingRow",
    "Value",
    "Written",
    "addresses",
    "boolean",
    "build",
    "check_keys",
    "choice",
    "comparable",
    "default_file",
    "did_you_mean",
    "effective",
    "entries",
    "folders",
    "home",
    "integer",
    "load",
    "milliseconds",
    "path",
    "paths",
    "reference",
    "refers",
    "secret",
    "setting",
    "text",
    "untrusted_chain_reason",
    "untrusted_tree_reason",
    "worker_settings",
]
