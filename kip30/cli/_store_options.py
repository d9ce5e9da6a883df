"""The options that choose the store, the same on every command that opens one."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from kip30.cli import _completion_values, _parameters
from kip30.cli._store_choice import StoreChoice

__all__ = ["STORE_OPTIONS", "StoreChoice", "loads_plugins", "opens_store", "store_options"]

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

STORE_OPTIONS = frozenset({"file", "backend", "settings"})
"""The names of the parameters that `store_options` adds."""


def opens_store(command: Callable[..., R]) -> Callable[..., R]:
    """Give *command* the three options over those of the program, as its first argument."""

    @store_options
    @click.pass_context
    @wraps(command)
    def with_store(context: click.Context, own: StoreChoice, *args: Any, **rest: Any) -> R:
        return command((context.find_object(StoreChoice) or StoreChoice()) | own, *args, **rest)

    return with_store


def store_options(command: Callable[..., R]) -> Callable[..., R]:
    """Give *command* the three options, passed as its first argument, a `StoreChoice`."""

    @click.option(
        "--config",
        "file",
        metavar="FILE",
        type=_parameters.FilePath(),
        help="Properties file; else $KIP30_CONFIG, else ./kip30.properties.",
    )
    @click.option(
        "--backend",
        metavar="NAME",
        shell_complete=_completion_values.stores,
        help="Store, as `kip30 backends` lists it.",
    )
    @click.option(
        "--set",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        type=_parameters.setting,
        shell_complete=_completion_values.settings,
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


def loads_plugins(command: F) -> F:
    """Give *command* the option ``--load-plugins``."""
    option = click.option(
        "--load-plugins",
        is_flag=True,
        help="Run code that the configuration names: plugin.additional.paths and"
        " plugin.locator.classname. Else it is not run, and the output says what is not known.",
    )
    return option(command)
