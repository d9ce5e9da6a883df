"""Embedded stores with something wrong, for tests of the suite's verdicts on them."""

import os
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from kip30.config import setting, text
from kip30.driver import Context
from kip30.driver.records import Condition, Version, Write
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings
from kip30_backends.embedded.storage import EmbeddedStorage


class _Overwriting(EmbeddedStorage):
    @override
    def write(self, write: Write) -> Future[Version]:
        return super().write(write._replace(condition=Condition.ANY))


class Overwriting(EmbeddedBackend):
    """Lets a put overwrite an existing record."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        self.storage.__class__ = _Overwriting


class Unfaultable(EmbeddedBackend):
    """Offers no fault that ends a session, or keeps it from being renewed."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        self.faults: Any = None


class Elusive(EmbeddedBackend):
    """Returns another `storage` each time, so that faults put before one do not happen."""

    @override
    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return copy(found) if name == "storage" else found


class Plain(EmbeddedBackend):
    """Declares no capability."""

    capabilities = frozenset()


class Private(EmbeddedBackend):
    """Gives every process a store of its own."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        own = settings.directory.with_name(f"state-{os.getpid()}")
        super().__init__(context, replace(settings, directory=own))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacelessSettings:
    """Settings that name the folder as text, which the suite does not recognize as a path."""

    where: str = setting("plugin.odd.where", text, doc="The folder")


class Placeless(EmbeddedBackend):
    """Cannot be made unreachable."""

    settings_class: ClassVar[Any] = PlacelessSettings

    def __init__(self, context: Context, settings: Any) -> None:
        super().__init__(context, EmbeddedSettings(directory=Path(settings.where)))
