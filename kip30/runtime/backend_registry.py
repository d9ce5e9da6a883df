"""From a name in the configuration to a backend class.

Backends register under the entry-point group ``kip30.backends``. All registrations of a name are
counted before any of them is imported. Finding a backend imports its module and nothing else; only
calling the class connects.
"""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import is_dataclass
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kip30.config import CommonSettings, Properties, did_you_mean
from kip30.config.extras import how_to_install
from kip30.driver import Backend, Capability
from kip30.driver.kit.fork_safety import UninterruptedByFork
from kip30.errors import ConfigError
from kip30.runtime.plugin_paths import AdditionalPaths

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "kip30.backends"
"""The entry-point group in which a package names its backends."""

EMBEDDED = "embedded"
"""The store that needs no server; the default when no other store is configured."""

OWN_PACKAGE = "kip30_backends"
OWN_STORES = ("cassandra", "consul", "embedded", "etcd", "zookeeper")
"""The stores of kip30 itself: only a module of `OWN_PACKAGE` may have one of these names."""

_REQUIRED = ("name", "settings_class", "capabilities")
_IMPORT_SECONDS = 5.0
_IMPORTS = UninterruptedByFork(_IMPORT_SECONDS)
"""A forked child cannot finish an import that another thread began, and would wait for it."""


class NotLoadedError(ConfigError):
    """The answer needs code named by the configuration, and plugins must not be loaded."""


class Choice(NamedTuple):
    """The backend to be used.

    Attributes:
        backend: Its class.
        reason: Where the setting that chose it was written, or why it is the default.
        is_default: Whether no setting chose it.
    """

    backend: type[Backend]
    reason: str
    is_default: bool = False


def choose(common: CommonSettings, properties: Properties, *, load_plugins: bool = True) -> Choice:
    """Return the backend that is configured, or the only possible one.

    That is the named one; else ZooKeeper if ``zookeeper.connect`` is set; else the only one besides
    the embedded one whose dependencies are installed; else the embedded one.

    Args:
        common: The settings of every store.
        properties: All that is configured.
        load_plugins: Whether to import what ``plugin.locator.classname`` names, and what is in
            ``plugin.additional.paths``.

    Raises:
        ConfigError: The named one cannot be imported, or none is named and several are possible.
        NotLoadedError: This cannot be decided without loading plugins.
    """
    registry = Registry(common.additional_paths, load_plugins=load_plugins)
    if common.locator_classname:
        found = registry.load_class(common.locator_classname)
        return Choice(found, _written("plugin.locator.classname", properties))
    if common.backend:
        return Choice(registry.find(common.backend), properties["plugin.backend"].origin)
    if "zookeeper.connect" in properties:
        origin = _written("zookeeper.connect", properties)
        return Choice(_find_zookeeper(origin, registry), origin)
    name, reason = _default(registry)
    return Choice(registry.find(name), reason, is_default=True)


def names(paths: Sequence[Path] = ()) -> list[str]:
    """Return the names of all registered backends, whether or not their dependencies are installed.

    Nothing is imported.
    """
    return Registry(paths).names()


def find(name: str, paths: Sequence[Path] = (), *, load_plugins: bool = True) -> type[Backend]:
    """Return the backend registered as *name*, installed or in *paths*.

    Raises:
        ConfigError: There is none, or more than one, or it cannot be imported, or is no backend.
        NotLoadedError: It is in *paths*, or may need a module from there, and plugins must not be
        loaded.
    """
    return Registry(paths, load_plugins=load_plugins).find(name)


def load_class(dotted: str, paths: Sequence[Path] = ()) -> type[Backend]:
    """Return the backend class ``package.module:Class`` or ``package.module.Class``.

    Raises:
        ConfigError: There is none, or it cannot be imported, or is no backend.
    """
    return Registry(paths).load_class(dotted)


class Registry:
    """The backends that are installed, and those in additional paths."""

    def __init__(self, paths: Sequence[Path], *, load_plugins: bool = True) -> None:
        """Import nothing yet.

        Raises:
            ConfigError: One of *paths* is not there, or another user could have written it.
        """
        self._paths = AdditionalPaths(paths)
        self._load_plugins = load_plugins

    def names(self) -> list[str]:
        """Return the names of all registered backends."""
        return sorted({claim.name for claim in (*_installed(), *self._brought())})

    def find(self, name: str) -> type[Backend]:
        """Return the backend registered as *name*; see `find`."""
        what = f"backend {name!r}"
        installed = [claim for claim in _installed() if claim.name == name]
        brought = [claim for claim in self._brought() if claim.name == name]
        claim = self._only_claim(name, [*installed, *brought])
        if brought and not self._load_plugins:
            raise NotLoadedError(f"{what} is in plugin.additional.paths and was not loaded")
        with self._importing(what, _extra(name)):
            found = claim.load()
        return _checked(found, what)

    def load_class(self, dotted: str) -> type[Backend]:
        """Return the backend class *dotted*; see `load_class`."""
        module, _, attribute = dotted.partition(":") if ":" in dotted else dotted.rpartition(".")
        if not (module and attribute):
            raise ConfigError(f"{dotted!r} is not the name of a class: write package.module:Class")
        what = f"backend class {dotted!r}"
        if not (self._load_plugins or _is_own(module)):
            raise NotLoadedError(f"{what} was not loaded")
        with self._importing(what, ""):
            found: object = reduce(getattr, attribute.split("."), import_module(module))
        return _checked(found, what)

    def _only_claim(self, name: str, claims: Sequence["EntryPoint"]) -> "EntryPoint":
        if not claims:
            raise ConfigError(_not_registered(name, self.names()))
        foreign = [claim.value for claim in claims if not _is_own(claim.module)]
        if name in OWN_STORES and foreign:
            raise ConfigError(
                f"the name {name!r} is kip30's own and is claimed by {' and '.join(foreign)}:"
                " uninstall that, or take it out of plugin.additional.paths"
            )
        if len(claims) > 1:
            targets = " and ".join(claim.value for claim in claims)
            raise ConfigError(f"backend {name!r} is claimed by {targets}: uninstall one of them")
        return claims[0]

    def _brought(self) -> list["EntryPoint"]:
        return self._paths.entry_points(GROUP)

    @contextmanager
    def _importing(self, what: str, advice: str) -> Generator[None]:
        """Turn every error of importing *what* into a `ConfigError`."""
        try:
            with _IMPORTS, self._paths.importable() if self._load_plugins else nullcontext():
                yield
        except ConfigError:
            raise
        except (Exception, SystemExit) as error:  # a module that exits would end the program
            if self._may_lack(error):
                raise NotLoadedError(
                    f"{what} needs a package that may be in plugin.additional.paths, and nothing"
                    " there was loaded"
                ) from error
            raise ConfigError(
                f"{what} cannot be imported: {type(error).__name__}: {error}{advice}"
            ) from error

    def _may_lack(self, error: BaseException) -> bool:
        """Return whether *error* could be due to plugins that were not loaded."""
        is_missing = isinstance(error, ModuleNotFoundError)
        return is_missing and bool(self._paths.places) and not self._load_plugins


def _written(key: str, properties: Properties) -> str:
    return f"{key} ({properties[key].origin})"


def _find_zookeeper(origin: str, registry: Registry) -> type[Backend]:
    chosen = f"{origin} asks for the store zookeeper"
    if "zookeeper" not in registry.names():
        remedy = "install a backend of that name, or set plugin.backend"
        raise ConfigError(f"{chosen}, which is not installed: {remedy}")
    try:
        return registry.find("zookeeper")
    except NotLoadedError:
        raise
    except ConfigError as error:
        raise ConfigError(f"{chosen}: {error}") from error.__cause__


def _default(registry: Registry) -> tuple[str, str]:
    """Return the name of the store that is used unless a setting chooses one, and why."""
    usable = [
        name for name in registry.names() if name != EMBEDDED and _is_installed(name, registry)
    ]
    if len(usable) > 1:
        names = f"{', '.join(usable)} or {EMBEDDED}"
        raise ConfigError(
            f"several stores are installed: set plugin.backend to {names},"
            " in the properties file (./kip30.properties if none is named) or by `kip30 --backend`"
        )
    if usable:
        return usable[0], f"it is the only store installed besides {EMBEDDED}"
    return EMBEDDED, "no other store is installed"


def _is_installed(name: str, registry: Registry) -> bool:
    """Return whether all that backend *name* imports is there; any other failure is raised."""
    try:
        registry.find(name)
    except NotLoadedError:
        raise
    except ConfigError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            return False
        raise
    return True


def _installed() -> list["EntryPoint"]:
    """Return what installed packages register, importing none of it."""
    from stevedore import NamedExtensionManager  # noqa: PLC0415  slower than all of kip30

    if not _has_cache_folder():
        from importlib import metadata  # noqa: PLC0415  a quarter of kip30's own import

        found = metadata.entry_points(group=GROUP)
        NamedExtensionManager.ENTRY_POINT_CACHE.setdefault(GROUP, [*found])
    with _IMPORTS:
        manager: NamedExtensionManager[Any] = NamedExtensionManager(
            GROUP, [], on_missing_entrypoints_callback=None
        )
    claims: list[EntryPoint] = manager.list_entry_points()
    return claims


def _has_cache_folder() -> bool:
    """Return whether stevedore's cache has a folder of the user's own.

    Without a home directory stevedore would read a folder ``~`` in the working directory, or
    ``.cache`` in the root directory, and create it.
    """
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return folder.startswith("/")
    return os.environ.get("HOME") != "" and os.path.expanduser("~").startswith("/")  # noqa: PTH111  pathlib raises


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == OWN_PACKAGE


def _checked(found: object, what: str) -> type[Backend]:
    if not (isinstance(found, type) and issubclass(found, Backend)):
        raise ConfigError(f"{what} is not a subclass of kip30.driver.Backend: {found!r}")
    missing = [name for name in _REQUIRED if not hasattr(found, name)]
    missing += sorted(found.__abstractmethods__)
    if missing:
        raise ConfigError(f"{what} lacks {', '.join(missing)}")
    if not is_dataclass(found.settings_class):
        raise ConfigError(f"{what} has a settings_class that is not a dataclass")
    declared = cast("object", found.capabilities)
    if not isinstance(declared, frozenset) or cast("frozenset[object]", declared) - {*Capability}:
        raise ConfigError(
            f"{what} has capabilities that are not a frozenset of kip30.driver.Capability"
        )
    return found


def _not_registered(name: str, known: Sequence[str]) -> str:
    hint = did_you_mean(name, known) or (
        f"{_extra(name)}; if it was installed in the last two minutes, stevedore's cache may hide"
        " it: wait that long, or set XDG_CACHE_HOME to a new folder"
    )
    return f"no backend {name!r} is installed{hint}; installed: {', '.join(known) or 'none'}"


def _extra(name: str) -> str:
    """Return how to install what kip30's own backend *name* needs, or nothing for others."""
    from importlib import metadata  # noqa: PLC0415  a quarter of kip30's own import

    try:
        extras = metadata.metadata("kip30").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return ""
    return f"; {how_to_install(name)}" if name in extras else ""
