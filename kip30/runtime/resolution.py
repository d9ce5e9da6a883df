"""Resolution of a configuration: the store, its settings, and the mistakes in them."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from kip30.config import (
    CommonSettings,
    Properties,
    SettingRow,
    Written,
    addresses,
    build,
    check_keys,
    effective,
    load,
    path,
    reference,
)
from kip30.config.settings import declarations
from kip30.driver import Backend, Capability, Context
from kip30.driver.clock import Clock, SystemClock
from kip30.driver.kit import descriptor_limit, fork_safety
from kip30.driver.scanning import ScanDriver, View
from kip30.errors import ConfigError, DefiniteError, UnsupportedError, UsageError
from kip30.names import check_id
from kip30.runtime.backend_registry import EMBEDDED, Choice, NotLoadedError, choose, names
from kip30.runtime.patched_threads import check_threads

_CHOOSING = (
    "plugin.backend",
    "plugin.locator.classname",
    "plugin.additional.paths",
    "plugin.additional.jars",
)
"""The common settings that choose a store; all must be written out."""

_PLACE_KINDS = (path.kind, addresses(1).kind)

Configuration = str | Path | Mapping[str, Written] | Properties | None
"""A properties file, a mapping of its keys, the result of `kip30.config.load`, or None."""


class Resolved(NamedTuple):
    """A configuration that was checked as far as is possible without opening the store."""

    choice: Choice
    context: Context
    settings: Any
    obeys_directives: bool
    priority: int
    is_metered: bool

    def open(self) -> Backend:
        """Open the store.

        Raises:
            UnsupportedError: See `PluginLocator.startup`, as for the errors of the store.
        """
        check_threads(self.choice.backend)
        self._check_forks()
        with _explaining(self.choice):
            return self.choice.backend(self.context, self.settings)

    def scanner(self, view: View, *, request_seconds: float | None = None) -> ScanDriver:
        """Open the store for reading *view*; the function `scanner` says more.

        Raises:
            UsageError: *request_seconds* is no positive number. Nothing was opened.
            Kip30Error: As `open`, and as `Backend.scanner`.
        """
        context = self.context
        if request_seconds is not None:
            if not 0 < request_seconds < inf:
                raise UsageError(f"a request cannot take {request_seconds} s: give more than 0")
            context = replace(context, operation_timeout_seconds=request_seconds)
        self.require_scanning()
        store = self.choice.backend
        check_threads(store)
        self._check_forks()
        with _explaining(self.choice):
            return store.scanner(context, self.settings, view)

    def require_scanning(self) -> None:
        """Raise if there is nothing to read the store in bulk with.

        Raises:
            UnsupportedError: The store does not declare ``scanning``.
        """
        store = self.choice.backend
        if Capability.SCANNING not in store.capabilities:
            raise UnsupportedError(
                f"store {store.name!r} does not offer {Capability.SCANNING.value}"
            )

    def _check_forks(self) -> None:
        store = self.choice.backend
        if fork_safety.is_child_of_user() and Capability.FORKING not in store.capabilities:
            raise UnsupportedError(
                f"store {store.name!r} cannot be used in a process that was forked from one"
                " that used a store: start it with multiprocessing's method 'spawn' or 'forkserver'"
            )
        fork_safety.note_use()


def resolve(
    config: Configuration, clock: Clock | None = None, *, load_plugins: bool = True
) -> Resolved:
    """Find the store that *config* chooses and build its settings, without opening it.

    Raises:
        ConfigError: A setting is wrong; the message names it.
        StoreError: This process has too few file descriptors left to open a store.
    """
    # Else any import or file fails, with an error that names that file and not the limit.
    descriptor_limit.require()
    properties = config if isinstance(config, Properties) else load(config)
    common = build(CommonSettings, properties)
    context = _context(common, clock or SystemClock())
    choice = choose(common, properties, load_plugins=load_plugins)
    with _explaining(choice):
        _check_keys(properties, common, choice)
        settings = build(choice.backend.settings_class, properties)
        return Resolved(
            choice,
            context,
            settings,
            obeys_directives=common.obeys_directives,
            priority=common.priority,
            is_metered=common.is_metered,
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of `check`.

    Attributes:
        backend: The store that would be opened; None if it is a plugin that was not loaded.
        unchecked: What could not be checked because no plugin was loaded, and why; empty if
            everything was checked.
        reason: Where the setting that chose the store was written, or why it is the default;
            empty without a backend.
        is_default: Whether no setting chose the store.
    """

    backend: type[Backend] | None
    unchecked: str = ""
    reason: str = ""
    is_default: bool = False


def check(config: Configuration = None, *, load_plugins: bool = False) -> Checked:
    """Find every mistake in *config* that can be found without opening the store.

    Args:
        config: As for `PluginLocator.startup`.
        load_plugins: Whether to import what ``plugin.locator.classname`` names, and what is in
            ``plugin.additional.paths``. Otherwise none of that code runs, and settings that only
            this code knows are not checked.

    Raises:
        ConfigError: A setting is wrong; the message names it.
    """
    properties = config if isinstance(config, Properties) else load(config)
    try:
        choice = resolve(properties, load_plugins=load_plugins).choice
    except NotLoadedError as error:
        return Checked(None, _unchecked(properties, str(error)))
    return Checked(choice.backend, reason=choice.reason, is_default=choice.is_default)


def find_store(config: Configuration = None, *, load_plugins: bool = False) -> Checked:
    """Find the store that *config* chooses, and keys that are no settings.

    Other values than those that choose the store are not looked at, and nothing that they refer to
    is read.

    Args:
        config: As for `PluginLocator.startup`.
        load_plugins: As for `check`.

    Raises:
        ConfigError: There is no such store, or a key that is no setting; the message names it.
    """
    properties = config if isinstance(config, Properties) else load(config)
    choosing = {key: properties[key] for key in _CHOOSING if key in properties}
    common = build(CommonSettings, Properties(choosing))
    try:
        choice = choose(common, properties, load_plugins=load_plugins)
    except NotLoadedError as error:
        return Checked(None, _unchecked(properties, str(error)))
    with _explaining(choice):
        _check_keys(properties, common, choice)
    return Checked(choice.backend, reason=choice.reason, is_default=choice.is_default)


class StorePlace(NamedTuple):
    """The store that a configuration chooses, and where it is.

    Attributes:
        store: Its name.
        place: Its addresses or directory, as the setting has it, without secrets; empty if the
            store's settings do not begin with such a one. If a setting names code that connects
            instead, that setting, as ``key=value``.
        unset: The keys of those of the two settings that are not written.
    """

    store: str
    place: str
    unset: Sequence[str]


def store_place(config: Configuration = None) -> StorePlace:
    """Return the store that *config* chooses, and its place. Nothing is opened.

    Raises:
        ConfigError: A setting is wrong; the message names it.
    """
    properties = config if isinstance(config, Properties) else load(config)
    choice = resolve(properties).choice
    settings_class = choice.backend.settings_class
    unset = ["plugin.backend"] if choice.is_default else []
    shown = effective(settings_class, properties)
    if (code := _connecting_code(settings_class, properties)) is not None:
        return StorePlace(choice.backend.name, f"{code}={shown[code]}", unset)
    setting = _place(settings_class)
    if setting is None:
        return StorePlace(choice.backend.name, "", unset)
    if not any(key in properties for key in (setting.key, *setting.aliases)):
        unset.append(setting.key)
    return StorePlace(choice.backend.name, shown[setting.key], unset)


def unset_store(config: Configuration = None) -> str:
    """Return the store of *config* and its place, in words, if one of them is not set; else "".

    Nothing is opened.

    Raises:
        ConfigError: A setting is wrong; the message names it.
    """
    store, place, unset = store_place(config)
    shown = f"the store is {store}"
    if place:
        shown += f", {place}"
    if store == EMBEDDED:
        shown += ", which only processes of this machine share"
    return f"{shown} (not set: {', '.join(unset)})" if unset else ""


def _place(settings_class: type[Any]) -> SettingRow | None:
    """Return the setting that says where the store is: the first one, if it is of such a kind."""
    first = next(iter(reference(settings_class)), None)
    return first if first and first.kind in _PLACE_KINDS else None


def _connecting_code(settings_class: type[Any], properties: Properties) -> str | None:
    """Return the key of the setting whose code makes the connection, if it is written."""
    keys = (one.key for one in declarations(settings_class) if one.runs_code)
    return next((key for key in keys if key in properties), None)


def ddl(config: Configuration = None, *, load_plugins: bool = False) -> Sequence[str]:
    """Return the statements with which an administrator prepares the store that *config* chooses.

    Args:
        config: As for `PluginLocator.startup`.
        load_plugins: As for `check`.

    Returns:
        An empty sequence where there is nothing to prepare.

    Raises:
        ConfigError: A setting is wrong, or the store is a plugin that was not loaded; the message
            names it.
    """
    resolved = resolve(config, load_plugins=load_plugins)
    return resolved.choice.backend.ddl(resolved.settings)


def scanner(
    config: Configuration = None, view: View | None = None, *, request_seconds: float | None = None
) -> ScanDriver:
    """Open the store that *config* chooses for reading in bulk. Nothing is claimed or created.

    Args:
        config: As for `PluginLocator.startup`.
        view: What to read; all of kip30's values if it is not given.
        request_seconds: How long each request may take; the operation timeout if it is not given.

    Raises:
        ConfigError: A setting is wrong; the message names it. Nothing was opened.
        UsageError: *request_seconds* is no positive number. Nothing was opened.
        UnsupportedError: The store does not declare `Capability.SCANNING`, or not for this view.
        UnavailableError: The store was not reached within the connect timeout.
        AuthenticationError: The store rejects the credentials.
        StoreError: The store cannot be read as it is; the message says why.
    """
    return resolve(config).scanner(view or View(), request_seconds=request_seconds)


def _check_keys(properties: Properties, common: CommonSettings, choice: Choice) -> None:
    store = choice.backend
    others = [name for name in names(common.additional_paths) if name != store.name]
    check_keys(properties, (CommonSettings, store.settings_class), other_stores=others)


@contextmanager
def _explaining(choice: Choice) -> Generator[None]:
    """Add to an error why this store was chosen, if no setting chose it."""
    try:
        yield
    except (ConfigError, DefiniteError) as error:
        if choice.is_default:
            error.args = (f"{error}; {_why(choice)}",)
        raise


def _why(choice: Choice) -> str:
    name = choice.backend.name
    return f"{name} is the default because {choice.reason}: plugin.backend names another store"


def _context(common: CommonSettings, clock: Clock) -> Context:
    return Context(
        clock=clock,
        namespace=check_id(common.namespace, "plugin.namespace"),
        session_timeout_seconds=common.session_timeout_seconds,
        session_timeout_is_configured=common.session_timeout is not None,
        operation_timeout_seconds=common.operation_timeout_seconds,
        connect_timeout_seconds=common.connect_timeout_seconds,
        margin_seconds=common.margin_seconds,
    )


def _unchecked(properties: Properties, reason: str) -> str:
    known = {row.key for row in reference(CommonSettings)}
    keys = [key for key in properties if key not in known]
    return f"{reason}; not checked: {', '.join(keys) or 'which settings it requires'}"
