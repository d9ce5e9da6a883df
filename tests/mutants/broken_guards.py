"""Embedded stores that compare guards too early, or not all of them."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.kit.futures import failed
from kip30.driver.kit.refusals import unmet, unmet_guard
from kip30.driver.records import Entry, Version, Write
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate

SoundWrite = Callable[[Write], Future[Version]]
SoundWrites = Callable[[Sequence[Write]], list[Future[Version]]]


class GuardComparedFirst(EmbeddedBackend):
    """Compares guards in a read of its own, and then writes without them."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", self._write)

    def _write(self, write: SoundWrite, one: Write) -> Future[Version]:
        refusal = unmet_guard(one, lambda key: _version(self._entry(key)))
        return write(one._replace(guards=())) if refusal is None else failed(refusal)

    def _entry(self, key: Key) -> Entry | None:
        return self.storage.read([key]).result()[0]


class GuardComparedLast(GuardComparedFirst):
    """Refuses a write by its condition first."""

    @override
    def _write(self, write: SoundWrite, one: Write) -> Future[Version]:
        refusal = unmet(one, _version(self._entry(one.key)))
        return write(one) if refusal is None else failed(refusal)


class GuardsForgottenByMany(EmbeddedBackend):
    """Ignores the guards of writes that come together."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write_many", _write_all_unguarded)


class FirstGuardOnly(EmbeddedBackend):
    """Compares one guard of each write."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _write_with_first)


class GuardOfAnyVersion(EmbeddedBackend):
    """Takes a guard that is there for one that holds."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", self._write)

    def _write(self, write: SoundWrite, one: Write) -> Future[Version]:
        keys = [guard.key for guard in one.guards]
        entries = self.storage.read(keys).result() if keys else []
        return write(one if None in entries else one._replace(guards=()))


def _version(entry: Entry | None) -> Version | None:
    return entry and entry.version


def _write_all_unguarded(write: SoundWrites, writes: Sequence[Write]) -> list[Future[Version]]:
    return write([one._replace(guards=()) for one in writes])


def _write_with_first(write: SoundWrite, one: Write) -> Future[Version]:
    return write(one._replace(guards=one.guards[:1]))
