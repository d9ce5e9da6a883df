"""``kip30 backends``: the registered stores and their capabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from kip30.cli import _output
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, loads_plugins, opens_store
from kip30.config import CommonSettings, build
from kip30.driver import Backend
from kip30.errors import ConfigError
from kip30.names import MAX_NAME_BYTES
from kip30.runtime.backend_registry import NotLoadedError, find, names

_KIB = 1024


@dataclass(frozen=True, slots=True)
class RegisteredBackend:
    """A registered backend: its class, or the reason why there is none."""

    name: str
    backend: type[Backend] | None
    problem: str = ""
    is_unknown: bool = False
    """True if this is a plugin that was not loaded."""

    @property
    def capabilities(self) -> list[str]:
        """Capabilities of the store beyond those that every store has."""
        return sorted(one.value for one in self.backend.capabilities) if self.backend else []


def registered(paths: Sequence[Path], *, load_plugins: bool) -> list[RegisteredBackend]:
    """Return all registered backends."""
    return [_registered(name, paths, load_plugins=load_plugins) for name in names(paths)]


@click.command("backends")
@loads_plugins
@_output.prints_records
@opens_store
def command(choice: StoreChoice, *, load_plugins: bool, output: Output) -> None:
    """List the stores: whether installed, what they offer, and their limits."""
    paths = build(CommonSettings, choice.properties()).additional_paths
    found = registered(paths, load_plugins=load_plugins)
    titles = ("STORE", "INSTALLED", "OFFERS", "LONGEST NAME", "LARGEST VALUE")
    output.table(titles, map(_row, found), map(_record, found))


def _registered(name: str, paths: Sequence[Path], *, load_plugins: bool) -> RegisteredBackend:
    try:
        return RegisteredBackend(name, find(name, paths, load_plugins=load_plugins))
    except NotLoadedError as error:
        return RegisteredBackend(name, None, f"{error}: `--load-plugins` runs it", is_unknown=True)
    except ConfigError as error:
        return RegisteredBackend(name, None, str(error))


def _row(one: RegisteredBackend) -> tuple[str, ...]:
    if one.backend is None:
        installed = "not loaded" if one.is_unknown else "no"
        return (one.name, f"{installed}: {one.problem}", "", "", "")
    limits = one.backend.limits
    sizes = (f"{MAX_NAME_BYTES} bytes", f"{limits.value_bytes // _KIB} KiB")
    return (one.name, "yes", ", ".join(one.capabilities), *sizes)


def _record(one: RegisteredBackend) -> dict[str, object]:
    limits = one.backend.limits if one.backend else None
    return {
        "name": one.name,
        "installed": None if one.is_unknown else one.backend is not None,
        "problem": one.problem or None,
        "capabilities": one.capabilities,
        "name_bytes": limits and MAX_NAME_BYTES,
        "value_bytes": limits and limits.value_bytes,
    }
