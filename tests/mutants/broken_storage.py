"""Embedded stores that lose, invent or forget writes."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from random import Random
from typing import Any

from kip30.driver import Context
from kip30.driver.kit.futures import failed, mapped
from kip30.driver.records import Condition, Entry, Version, Write
from kip30.errors import FencedError
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate

SoundWrite = Callable[[Write], Future[Version]]
_PAUSE = 0.4
_REFUSED = 0.1

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
    """Writes over any version instead of the expected one."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _write_any_version)


class FenceIgnored(EmbeddedBackend):
    """Writes for every former leader."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _write_unfenced)


class SetCreatesOnly(EmbeddedBackend):
    """Treats a set as a put."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _with_condition(Condition.ANY, Condition.ABSENT))


class SetUpdatesOnly(EmbeddedBackend):
    """Treats a set as an update."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _with_condition(Condition.ANY, Condition.PRESENT))


class SetIgnoresFence(EmbeddedBackend):
    """Sets for every former leader."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _set_unfenced)


class SetIsRepeated(EmbeddedBackend):
    """Sends each set that creates its key once more, as after a lost answer."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", partial(_set_again, self.storage.read))


class MinorIgnored(EmbeddedBackend):
    """Compares half of a version."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _write_at_major)


class ZeroMeansAbsent(EmbeddedBackend):
    """Creates a key whose expected version is 0."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _create_at_zero)


class EpochZeroMeansNobody(EmbeddedBackend):
    """Treats a fence of epoch 0 as none."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _write_at_epoch_zero)


class RefusesAtRandom(EmbeddedBackend):
    """Refuses a leader's write now and then."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", partial(_refuse_sometimes, Random(1)))  # noqa: S311  to be repeated


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


def _with_condition(
    given: Condition, taken: Condition
) -> Callable[[SoundWrite, Write], Future[Version]]:
    def write_otherwise(write: SoundWrite, one: Write) -> Future[Version]:
        return write(one._replace(condition=taken) if one.condition is given else one)

    return write_otherwise


def _set_unfenced(write: SoundWrite, one: Write) -> Future[Version]:
    return write(one._replace(fence=None) if one.condition is Condition.ANY else one)


def _set_again(read: Any, write: SoundWrite, one: Write) -> Future[Version]:
    creates = one.condition is Condition.ANY and read([one.key]).result() == [None]
    done = write(one)
    if creates:
        done.exception()
        time.sleep(_PAUSE)  # for another client to write meanwhile
        return write(one)
    return done


def _write_at_major(write: SoundWrite, one: Write) -> Future[Version]:
    if isinstance(one.condition, Version):
        return write(one._replace(condition=Version(one.condition.major)))
    return write(one)


def _create_at_zero(write: SoundWrite, one: Write) -> Future[Version]:
    creates = one.condition == Version(0) and one.data is not None
    return write(one._replace(condition=Condition.ABSENT) if creates else one)


def _write_at_epoch_zero(write: SoundWrite, one: Write) -> Future[Version]:
    unfenced = one.fence is not None and one.fence.epoch == 0
    return write(one._replace(fence=None) if unfenced else one)


def _refuse_sometimes(random: Random, write: SoundWrite, one: Write) -> Future[Version]:
    if one.fence is not None and random.random() < _REFUSED:
        return failed(FencedError("the epoch is not the newest, or so it seems"))
    return write(one)


def _write_any_version(write: SoundWrite, one: Write) -> Future[Version]:
    expected = isinstance(one.condition, Version)
    return write(one._replace(condition=Condition.PRESENT) if expected else one)


def _write_unfenced(write: SoundWrite, one: Write) -> Future[Version]:
    return write(one._replace(fence=None))
