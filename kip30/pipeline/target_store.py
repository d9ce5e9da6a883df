"""The store that a run writes to: noted when it begins, so that no resume writes to another one.

Names of files say nothing about that: a properties file may name another store by now, and at the
same address there may be a store that was created again, or restored from a backup.
"""

from collections.abc import Collection

from kip30 import PluginLocator
from kip30.driver import Capability
from kip30.driver.scanning import View
from kip30.errors import UsageError
from kip30.pipeline.endpoints import StoreEndpoint
from kip30.pipeline.run_directory import RunDirectory
from kip30.pipeline.store_config import StoreConfig
from kip30.runtime.resolution import scanner


def note_target(
    directory: RunDirectory, target: StoreEndpoint, accepted: Collection[str] = ()
) -> None:
    """Note which store *target* is, or require that it still is the one that was noted.

    Waves that were written to another store, which is accepted now, are due again. A store that
    does not offer scanning has no identity that could be compared.

    Args:
        directory: The run.
        target: The store that it writes to.
        accepted: Stores that the run may go on with although it has written to another one.

    Raises:
        UsageError: The target is another store than before, and not accepted. Nothing was changed.
        Kip30Error: It cannot be used.
    """
    manifest = directory.manifest
    before, now = manifest.target, identity_of(target.config)
    if before and now != before and now not in accepted:
        raise UsageError(
            f"{target.text} is not the store that this run wrote to: that was {before}, this is"
            f" {now}; check its configuration, or give --accept-store '{now}' to continue with it"
        )
    if now != before:
        manifest.target = now
        if before:
            manifest.waves = []
        directory.save()


def identity_of(config: StoreConfig) -> str:
    """Return a text that distinguishes the namespace of the store *config*; "" if there is none.

    Raises:
        Kip30Error: The store cannot be used.
    """
    resolved = config.resolve()
    backend = resolved.choice.backend
    if Capability.SCANNING not in backend.capabilities:
        return ""
    properties = config.properties()
    # A scan creates nothing, so a new store has no identity before it is written to.
    with PluginLocator().startup(properties), scanner(properties, View()) as store:
        return f"{backend.name}:{store.position().store}#{resolved.context.namespace}"
