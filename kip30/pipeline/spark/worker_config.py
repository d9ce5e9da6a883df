"""Rules for jobs whose workers are on other machines."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from kip30.config import reference
from kip30.config.expansion import refers_to_relative_file
from kip30.config.parsers import PATH_KINDS
from kip30.errors import UsageError
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.endpoints import Endpoint, SnapshotEndpoint

_EMBEDDED = "embedded"


def is_shared(master: str | None, remote: str | None = None) -> bool:
    """Return whether all processes of a job are on this machine, and so read the same files."""
    return remote is None and (master is None or master.startswith("local"))


def shipped(endpoint: Endpoint) -> Endpoint:
    """Return *endpoint* for workers on other machines: with its settings in place of its file.

    Raises:
        UsageError: Its store is on this machine alone, or a path in it is relative.
        ConfigError: A secret is written out; the message names the key and what to write instead.
    """
    if isinstance(endpoint, SnapshotEndpoint):
        return endpoint
    return replace(endpoint, config=shipped_config(endpoint.config))


def shipped_config(config: StoreConfig) -> StoreConfig:
    """Return *config* as `shipped` does, and raise as it does."""
    resolved = config.resolve()
    backend = resolved.choice.backend
    if backend.name == _EMBEDDED:
        raise UsageError(
            "the embedded store is on this machine alone: use a local master, such as local[*]"
        )
    sent = config.shipped()
    _check_paths(sent, backend.settings_class)
    return sent


def _check_paths(config: StoreConfig, settings_class: type[Any]) -> None:
    kinds = {row.key: row.kind for row in reference(settings_class)}
    for key, text in config.settings or ():
        is_path = kinds.get(key) in PATH_KINDS
        if (is_path and not _is_absolute(text)) or refers_to_relative_file(text):
            raise UsageError(
                f"{key}={text} is a relative path, which means another file on each machine of a"
                " cluster: write an absolute one"
            )


def _is_absolute(text: str) -> bool:
    return text.startswith(("${", "~")) or Path(text).is_absolute()
