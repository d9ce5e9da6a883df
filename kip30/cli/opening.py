"""The options that say which store is meant, the same on every command that opens one."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from kip30.cli import parameters
from kip30.config import Properties, load
from kip30.locator import PluginLocator

R = TypeVar("R")

STORE_OPTIONS = frozenset({"file", "backend", "settings"})
"""The names of the parameters that `store_options` adds."""

_BY_CLASS = "plugin.locator.classname"
_BY_NAME = "plugin.backend"


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """What ``--config``, ``--backend`` and ``--set`` say."""

    file: Path | None = None
    backend: str | None = None
    settings: Mapping[str, str] | None = None

    def __or__(self, other: "StoreChoice") -> "StoreChoice":
        """Return both together; *other* wins where both say something."""
        return StoreChoice(
            other.file or self.file,
            other.backend or self.backend,
            {**(self.settings or {}), **(other.settings or {})},
        )

    def properties(self) -> Properties:
        """Return the settings of the file with those of the command line over them."""
        properties = load(self.file)
        if self.backend:
            properties = _without(properties, _BY_CLASS) | load(
                {_BY_NAME: self.backend}, origin="--backend"
            )
        return properties | load(self.settings or {}, origin="--set")

    @contextmanager
    def open(self) -> Generator[PluginLocator]:
        """Open the store for the time of a with-block."""
        with PluginLocator().startup(self.properties()) as locator:
            yield locator


def opens_store(command: Callable[..., R]) -> Callable[..., R]:
    """Give *command* the three options over those of the program, as its first argument."""

    @store_options
    @click.pass_context
    @wraps(command)
    def with_store(context: click.Context, own: StoreChoice, *args: Any, **rest: Any) -> R:
        return command((context.find_object(StoreChoice) or StoreChoice()) | own, *args, **rest)

    return with_store


def store_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give *command* the three options, handed on as its first argument, a `StoreChoice`."""

    @click.option(
        "--config",
        "file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="Properties file; else $KIP30_CONFIG, else ./kip30.properties.",
    )
    @click.option("--backend", metavar="NAME", help="Store, as `kip30 backends` lists it.")
    @click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        type=parameters.setting,
        help="One setting, over those of the file. May be repeated.",
    )
    @wraps(command)
    def with_choice(
        *args: Any,
        file: Path | None,
        backend: str | None,
        settings: tuple[tuple[str, str], ...],
        **rest: Any,
    ) -> R:
        return command(StoreChoice(file, backend, dict(settings)), *args, **rest)

    return with_choice


def _without(properties: Properties, left_out: str) -> Properties:
    return Properties({key: value for key, value in properties.items() if key != left_out})
