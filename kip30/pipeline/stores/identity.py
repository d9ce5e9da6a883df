"""The stores of a run: noted when it begins, and compared whenever it opens one of them.

Names of files say nothing about that: a properties file may name another store by now, and at the
same address there may be a store that was created again, or restored from a backup.
"""

from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from kip30.config import load
from kip30.driver import Capability
from kip30.driver.scanning import ScanDriver, View
from kip30.errors import UsageError
from kip30.locator import PluginLocator
from kip30.pipeline.run.directory import RunDirectory
from kip30.pipeline.run.manifest import Manifest
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.endpoints import StoreEndpoint
from kip30.runtime.resolution import Resolved, resolve

PLACE = ("store", "namespace")
"""The names of the facts that `place_of` returns."""


def place_of(resolved: Resolved) -> dict[str, str]:
    """Return the kind of the store and the namespace that a configuration names."""
    return dict(zip(PLACE, (resolved.choice.backend.name, resolved.context.namespace), strict=True))


def check_same(noted: Mapping[str, Any], now: Mapping[str, str], subject: str) -> None:
    """Return if all facts of *now* are as *noted*, the source in a manifest, has them.

    Raises:
        UsageError: One is another; the message begins with *subject*.
    """
    for name, value in now.items():
        before = noted.get(name)
        if before != value:
            raise UsageError(
                f"{subject}: the run was begun with the {name} {before!r}, and now it is {value!r}"
            )


def open_source(
    config: StoreConfig,
    view: View,
    noted: Mapping[str, Any] | None,
    *,
    request_seconds: float | None = None,
) -> ScanDriver:
    """Open *view* of the store of *config*, which is read once for the comparison and the opening.

    A position names its store, and not the namespace.

    Args:
        config: The store.
        view: The part of it.
        noted: What a run has noted of its source, as `place_of`; None: nothing yet.
        request_seconds: As for `kip30.runtime.resolution.scanner`.

    Raises:
        UsageError: *config* names another kind of store or another namespace. Nothing was opened.
        Kip30Error: As `kip30.runtime.resolution.scanner`.
    """
    resolved = config.resolve()
    if noted is not None:
        check_same(noted, place_of(resolved), "the source")
    return resolved.scanner(view, request_seconds=request_seconds)


def check_target(manifest: Manifest, target: StoreEndpoint, accepted: Collection[str] = ()) -> str:
    """Return the identity of *target*, if the run may write to it.

    A store that does not offer scanning has no identity that could be compared.

    Args:
        manifest: The run.
        target: The store that it writes to.
        accepted: Stores that the run may go on with although it has written to another one.

    Raises:
        UsageError: The target is another store than before, and not accepted. Nothing was changed.
        Kip30Error: It cannot be used.
    """
    before, now = manifest.target, identity_of(target.config)
    if before and now != before and now not in accepted:
        raise _other_target(target.text, before, now)
    return now


def note_target(
    directory: RunDirectory, target: StoreEndpoint, accepted: Collection[str] = ()
) -> None:
    """Note which store *target* is, once `check_target` has found that the run may write to it."""
    save_target(directory, check_target(directory.manifest, target, accepted))


def save_target(directory: RunDirectory, now: str) -> None:
    """Note that the run writes to *now*. Waves that were written to another store are due again."""
    manifest = directory.manifest
    before, manifest.target = manifest.target, now
    if now != before:
        if before:
            manifest.waves = []
        directory.save()


@contextmanager
def open_target(config: StoreConfig, noted: str) -> Generator[PluginLocator]:
    """Open the store of *config* for the time of a with-block, if it is the one that was *noted*.

    Its file may have been changed since `note_target`: it is read once for both. The client takes
    no part in operations, also if the file has that: its candidates would note their terms in keys
    of the target, which the source has not.

    Raises:
        UsageError: It is another store than *noted*, its `identity_of`. Nothing was written.
        Kip30Error: It cannot be used.
    """
    properties = config.properties()
    apart = load({"plugin.operations": False}, origin="a job of the pipeline")
    with PluginLocator().startup(properties | apart) as locator:
        if (now := _identity(resolve(properties))) != noted:
            raise _other_target("the target", noted, now)
        yield locator


def identity_of(config: StoreConfig) -> str:
    """Return a text that distinguishes the namespace of the store *config*; "" if there is none.

    Raises:
        Kip30Error: The store cannot be used.
    """
    properties = config.properties()
    # A scan creates nothing, so a new store has no identity before it is written to.
    with PluginLocator().startup(properties):
        return _identity(resolve(properties))


def identity_text(store: str, position_store: str, namespace: str) -> str:
    """Return the identity of a namespace of a store of the kind *store*, by its position."""
    return f"{store}:{position_store}#{namespace}"


def _identity(resolved: Resolved) -> str:
    """Return the identity of the store of a configuration, which a client has open."""
    backend = resolved.choice.backend
    if Capability.SCANNING not in backend.capabilities:
        return ""
    with resolved.scanner(View()) as store:
        return identity_text(backend.name, store.position().store, resolved.context.namespace)


def _other_target(text: str, before: str, now: str) -> UsageError:
    return UsageError(
        f"{text} is not the store that this run wrote to: that was {before}, this is {now};"
        f" check its configuration, or give --accept-store '{now}' to continue with it"
    )
