"""Embedded stores that lose, invent or forget writes."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from kip30.driver import Context
from kip30.futures import mapped
from kip30.names import Key
from kip30.records import Condition, Entry, Version, Write
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate

SoundWrite = Callable[[Write], Future[Version]]
SoundRead = Callable[[Sequence[Key]], Future[list[Entry | None]]]


class PutOverwrites(EmbeddedBackend):
    """Forgets the condition of a put."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _without({Condition.ABSENT}))


class UpdateCreates(EmbeddedBackend):
    """Forgets the condition of an update."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _without({Condition.PRESENT}))


class LostUpdate(EmbeddedBackend):
    """Writes whatever version is there instead of the expected one."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _write_any_version)


class FenceIgnored(EmbeddedBackend):
    """Writes for whoever led once."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _write_unfenced)


class StaleReads(EmbeddedBackend):
    """Reads a key once, and then from a cache that only its own writes clear."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        self._cache: dict[tuple[Key, ...], list[Entry | None]] = {}
        mutate(self.storage, "read", self._read)
        mutate(self.storage, "write", self._write)

    def _read(self, read: SoundRead, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        known = tuple(keys)
        return mapped(read(keys), lambda entries: self._cache.setdefault(known, entries))

    def _write(self, write: SoundWrite, one: Write) -> Future[Version]:
        self._cache.clear()
        return write(one)


def _without(conditions: set[Condition]) -> Callable[[SoundWrite, Write], Future[Version]]:
    def write_anyway(write: SoundWrite, one: Write) -> Future[Version]:
        forgotten = one.condition in conditions and one.data is not None
        return write(one._replace(condition=Condition.ANY) if forgotten else one)

    return write_anyway


def _write_any_version(write: SoundWrite, one: Write) -> Future[Version]:
    expected = isinstance(one.condition, Version)
    return write(one._replace(condition=Condition.PRESENT) if expected else one)


def _write_unfenced(write: SoundWrite, one: Write) -> Future[Version]:
    return write(one._replace(fence=None))
