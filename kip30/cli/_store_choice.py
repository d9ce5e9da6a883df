"""The store that a command line chooses."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kip30.config import Properties, load
from kip30.locator import PluginLocator

_BY_CLASS = "plugin.locator.classname"
_BY_NAME = "plugin.backend"


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """Values of ``--config``, ``--backend`` and ``--set``."""

    file: Path | None = None
    backend: str | None = None
    settings: Mapping[str, str] | None = None

    def __or__(self, other: "StoreChoice") -> "StoreChoice":
        """Return both together; *other* wins where both are set."""
        return StoreChoice(
            other.file or self.file,
            other.backend or self.backend,
            {**(self.settings or {}), **(other.settings or {})},
        )

    def properties(self, *, may_wait: bool = True) -> Properties:
        """Return the settings of the file with those of the command line over them.

        Args:
            may_wait: Whether the file may be a pipe, which only the first call can read.

        Raises:
            ConfigError: The file cannot be read, or a setting has no such key.
        """
        properties = load(self.file, may_wait=may_wait)
        if self.backend:
            properties = _without(properties, _BY_CLASS) | load(
                {_BY_NAME: self.backend}, origin="--backend"
            )
        return properties | load(self.settings or {}, origin="--set")

    @contextmanager
    def open(self) -> Generator[PluginLocator]:
        """Open the store for the duration of a with-block."""
        with PluginLocator().startup(self.properties()) as locator:
            yield locator


def _without(properties: Properties, left_out: str) -> Properties:
    return Properties({key: value for key, value in properties.items() if key != left_out})
