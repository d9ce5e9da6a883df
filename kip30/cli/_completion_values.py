"""The values offered to a shell that completes stores, settings and keys.

Nothing is offered, and nothing printed, if the values are not known. No plugin is loaded for this.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps

import click

from kip30.cli._store_choice import StoreChoice
from kip30.codecs import BYTES
from kip30.config import CommonSettings, Properties, build, load, reference
from kip30.errors import ConfigError
from kip30.locator import PluginLocator
from kip30.runtime.backend_registry import find, names
from kip30.runtime.resolution import check

Complete = Callable[[click.Context, click.Parameter, str], list[str]]

_MOST_SECONDS = 1.0
"""How long the shell waits for a connection, and again for the values."""


def _offered(offer: Callable[[StoreChoice, str], Iterable[str]]) -> Complete:
    """Return *offer* as click calls it: it never fails."""

    @wraps(offer)
    def complete(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
        try:
            return sorted(one for one in offer(_choice(context), typed) if one.startswith(typed))
        except Exception:  # noqa: BLE001  a shell can do nothing with any error
            return []

    return complete


@_offered
def stores(choice: StoreChoice, _typed: str) -> Iterable[str]:
    """Offer the names of all registered stores."""
    return names(build(CommonSettings, choice.properties(may_wait=False)).additional_paths)


@_offered
def settings(choice: StoreChoice, typed: str) -> Iterable[str]:
    """Offer ``KEY=`` for the settings of every store, of the one in use, and of one being typed."""
    classes: list[type[object]] = [CommonSettings]
    backend = None
    with suppress(ConfigError):  # the setting being typed may be the missing one
        backend = check(choice.properties(may_wait=False)).backend
    if backend is not None:
        classes.append(backend.settings_class)
    begun = typed.removeprefix("plugin.").partition(".")[0]
    if (backend is None or begun != backend.name) and begun in names():
        classes.append(find(begun).settings_class)
    return (f"{row.key}=" for one in classes for row in reference(one))


@_offered
def keys(choice: StoreChoice, typed: str) -> Iterable[str]:
    """Offer the keys of the namespace that *typed* begins with."""
    with _open(choice) as locator:
        return [*locator.storage(BYTES).list(typed.rpartition("/")[0])]


def _open(choice: StoreChoice) -> PluginLocator:
    properties = choice.properties(may_wait=False)
    if check(properties).backend is None:
        raise ConfigError("plugins are not loaded for this")
    return PluginLocator().startup(properties | _quick(properties))


def _quick(properties: Properties) -> Properties:
    """Return the timeouts of *properties*, but no longer ones than a shell may wait."""
    settings = build(CommonSettings, properties)
    timeouts = {
        "plugin.connect.timeout.ms": settings.connect_timeout_seconds,
        "plugin.operation.timeout.ms": settings.operation_timeout_seconds,
    }
    return load(
        {key: round(min(one, _MOST_SECONDS) * 1000) for key, one in timeouts.items()},
        origin="completion",
    )


def _choice(context: click.Context) -> StoreChoice:
    """Return the values of the store's options so far, before and after the command."""
    chosen = StoreChoice()
    line: list[click.Context] = []
    current: click.Context | None = context
    while current is not None:
        line.insert(0, current)
        current = current.parent
    for one in line:
        chosen |= _said(one)
    return chosen


def _said(context: click.Context) -> StoreChoice:
    said = context.params
    return StoreChoice(said.get("file"), said.get("backend"), dict(said.get("settings") or ()))
