"""From a name in the configuration to a backend class.

Backends register under the entry-point group ``kip30.backends``. Finding one imports its module and
nothing else; calling the class is what connects.
"""

import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from kip30.config import CommonSettings, Properties, did_you_mean
from kip30.driver import Backend
from kip30.errors import ConfigError

if TYPE_CHECKING:
    from stevedore import NamedExtensionManager

GROUP = "kip30.backends"
"""The entry-point group in which a package names its backends."""

EMBEDDED = "embedded"
"""The store that needs no server and serves when no other one is meant."""

_REQUIRED = ("name", "settings_class", "capabilities")
_PATH_LOCK = threading.RLock()


def choose(common: CommonSettings, properties: Properties) -> type[Backend]:
    """Return the backend that is configured, or the only one that can be meant.

    That is the named one; else ZooKeeper if ``zookeeper.connect`` is there; else the only one
    besides the embedded one whose needs are installed; else the embedded one.

    Raises:
        ConfigError: The named one cannot be had, or none is named and several could be meant.
    """
    paths = common.additional_paths
    if common.locator_classname:
        return load_class(common.locator_classname, paths)
    if common.backend:
        return find(common.backend, paths)
    if "zookeeper.connect" in properties:
        return _find_zookeeper(properties["zookeeper.connect"].origin, paths)
    return find(_only_one(paths), paths)


def _find_zookeeper(origin: str, paths: Sequence[Path]) -> type[Backend]:
    chosen = f"zookeeper.connect ({origin}) asks for the store zookeeper"
    if "zookeeper" not in names(paths):
        remedy = "install a backend of that name, or set plugin.backend"
        raise ConfigError(f"{chosen}, which is not installed: {remedy}")
    try:
        return find("zookeeper", paths)
    except ConfigError as error:
        raise ConfigError(f"{chosen}: {error}") from error.__cause__


def names(paths: Sequence[Path] = ()) -> list[str]:
    """Return the names of all registered backends, whether or not their needs are installed."""
    with _searching(paths):
        return sorted(set(_scan([]).entry_points_names()))


def find(name: str, paths: Sequence[Path] = ()) -> type[Backend]:
    """Return the backend registered as *name*, looking in *paths* first.

    Raises:
        ConfigError: There is none, or more than one, or it cannot be imported, or is no backend.
    """
    what = f"backend {name!r}"
    with _searching(paths), _importing(what, _extra(name)):
        claims = _scan([name]).extensions
    if not claims:
        raise ConfigError(_not_registered(name, names(paths)))
    if len(claims) > 1:
        targets = " and ".join(claim.entry_point_target for claim in claims)
        raise ConfigError(f"{what} is claimed by {targets}: uninstall one of them")
    return _checked(claims[0].plugin, what)


def load_class(dotted: str, paths: Sequence[Path] = ()) -> type[Backend]:
    """Return the backend class ``package.module:Class`` or ``package.module.Class``.

    Raises:
        ConfigError: There is none, or it cannot be imported, or is no backend.
    """
    module, _, attribute = dotted.partition(":") if ":" in dotted else dotted.rpartition(".")
    if not (module and attribute):
        raise ConfigError(f"{dotted!r} is not the name of a class: write package.module:Class")
    with _searching(paths), _importing(f"backend class {dotted!r}", ""):
        found: object = reduce(getattr, attribute.split("."), import_module(module))
    return _checked(found, f"backend class {dotted!r}")


def _only_one(paths: Sequence[Path]) -> str:
    usable = [name for name in names(paths) if name != EMBEDDED and _is_installed(name, paths)]
    if len(usable) > 1:
        settings = " or ".join(f"plugin.backend={name}" for name in usable)
        raise ConfigError(f"several stores are installed: set {settings}")
    return usable[0] if usable else EMBEDDED


def _is_installed(name: str, paths: Sequence[Path]) -> bool:
    """Say whether all that backend *name* imports is there; any other failure is raised."""
    try:
        find(name, paths)
    except ConfigError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            return False
        raise
    return True


def _scan(wanted: list[str]) -> "NamedExtensionManager[Any]":
    """Import the registered backends called one of *wanted*; with none, only look around."""
    from stevedore import NamedExtensionManager  # noqa: PLC0415  slower than all of kip30

    def fail(_manager: object, _entry_point: object, error: BaseException) -> NoReturn:
        raise error

    return NamedExtensionManager(
        GROUP, wanted, on_load_failure_callback=fail, on_missing_entrypoints_callback=None
    )


@contextmanager
def _searching(paths: Sequence[Path]) -> Generator[None]:
    """Have Python look in *paths* first while this lasts.

    What a backend imports later than on its own import must be in its package or installed.
    """
    added = [_existing(path) for path in paths]
    if not added:
        yield
        return
    with _PATH_LOCK:
        sys.path[:0] = added
        _forget_scan()
        try:
            yield
        finally:
            for entry in added:
                sys.path.remove(entry)
            _forget_scan()


def _existing(path: Path) -> str:
    if not path.exists():
        raise ConfigError(f"plugin.additional.paths: there is no {path}")
    return str(path.resolve())


def _forget_scan() -> None:
    """Have stevedore look again: it keeps what it found first, whatever `sys.path` has become."""
    from stevedore import ExtensionManager  # noqa: PLC0415  slower than all of kip30

    ExtensionManager.ENTRY_POINT_CACHE.pop(GROUP, None)


@contextmanager
def _importing(what: str, advice: str) -> Generator[None]:
    """Turn whatever goes wrong on importing *what* into a `ConfigError`."""
    try:
        yield
    except Exception as error:
        raise ConfigError(
            f"{what} cannot be imported: {type(error).__name__}: {error}{advice}"
        ) from error


def _checked(found: object, what: str) -> type[Backend]:
    if not (isinstance(found, type) and issubclass(found, Backend)):
        raise ConfigError(f"{what} is no subclass of kip30.driver.Backend but {found!r}")
    missing = [name for name in _REQUIRED if not hasattr(found, name)]
    missing += sorted(found.__abstractmethods__)
    if missing:
        raise ConfigError(f"{what} lacks {', '.join(missing)}")
    if not is_dataclass(found.settings_class):
        raise ConfigError(f"{what} has a settings_class that is no dataclass")
    return found


def _not_registered(name: str, known: Sequence[str]) -> str:
    hint = did_you_mean(name, known) or (
        f"{_extra(name)}; stevedore's cache may hide one that was installed in the last two"
        " minutes: wait, or set XDG_CACHE_HOME to a new folder"
    )
    return f"no backend is called {name!r}{hint}; registered: {', '.join(known) or 'none'}"


def _extra(name: str) -> str:
    """Return how to install what kip30's own backend *name* needs, or nothing for others."""
    from importlib import metadata  # noqa: PLC0415  a quarter of kip30's own import

    try:
        extras = metadata.metadata("kip30").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return ""
    return f"; pip install 'kip30[{name}]'" if name in extras else ""
