"""Embedded stores whose watches tell too little, too much, or in the wrong order."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kip30.driver import Context, Watch
from kip30.driver.records import Condition, Entry, Snapshot, Target, Version, Write
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate

Sink = Callable[[Snapshot], None]
SoundWatch = Callable[[Target, Sink], Watch]
Retelling = Callable[[Snapshot | None, Snapshot], Iterator[Snapshot]]

_PAUSE = 0.01
_POLL_SECONDS = 5.0
_UNNOTED = "UPDATE change SET root = 0, scope = x'', name = x'' WHERE rev = ?"


class DropsLastEvent(EmbeddedBackend):
    """Tells of a state when the next one is there."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "watch", _retold(_only_the_one_before))


class Duplicates(EmbeddedBackend):
    """Tells of every state twice, the second time as if it had been written again."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "watch", _retold(_twice))


class Reorders(EmbeddedBackend):
    """Tells of the state before once more after each."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "watch", _retold(_back_and_forth))


class KeySetMissesRemove(EmbeddedBackend):
    """Never tells that a key has gone from its namespace."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "watch", _retold(_unless_something_went))


class SubscribesAfterReading(EmbeddedBackend):
    """Reads first and subscribes then, and finds what changed in between at its next poll."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "watch", self._watch)

    def _watch(self, sound: SoundWatch, target: Target, sink: Sink) -> Watch:
        sink(self.observe.snapshot(target).result())
        is_first = True

        def deliver(now: Snapshot) -> None:
            nonlocal is_first
            if is_first:
                # The sound watch begins with the state as of the subscription, which the wrong one
                # would not know yet: no notification tells of a change before that.
                is_first = False
                poll = threading.Timer(_POLL_SECONDS, sink, [now])
                poll.daemon = True
                poll.start()
            else:
                sink(now)

        return sound(target, deliver)


class ManyNotifyNobody(EmbeddedBackend):
    """Notes no change of keys that are written together."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "_try_each", _write_each_unnoted)


class SetsNotifyNobody(EmbeddedBackend):
    """Notes no change of a key that is set."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "_write", _set_unnoted)


def _retold(retell: Retelling) -> Callable[[SoundWatch, Target, Sink], Watch]:
    """Return a watch whose sink is handed what *retell* makes of two successive states."""

    def watch(sound: SoundWatch, target: Target, sink: Sink) -> Watch:
        before: Snapshot | None = None

        def tell(now: Snapshot) -> None:
            nonlocal before
            for count, snapshot in enumerate(retell(before, now)):
                if count:
                    time.sleep(_PAUSE)  # or the states are merged, as they may be
                # Still growing, and greater than that of any read, so that all are believed.
                sink(snapshot._replace(order=10 * now.order + count))
            before = now

        return sound(target, tell)

    return watch


def _only_the_one_before(before: Snapshot | None, now: Snapshot) -> Iterator[Snapshot]:
    yield before or now


def _twice(_before: Snapshot | None, now: Snapshot) -> Iterator[Snapshot]:
    yield now
    entries = {name: _rewritten(entry) for name, entry in now.entries.items()}
    yield now._replace(entries=entries)


def _rewritten(entry: Entry) -> Entry:
    return entry._replace(version=Version(entry.version.major, entry.version.minor + 1))


def _back_and_forth(before: Snapshot | None, now: Snapshot) -> Iterator[Snapshot]:
    yield now
    if before is not None:
        yield before
        yield now


def _unless_something_went(before: Snapshot | None, now: Snapshot) -> Iterator[Snapshot]:
    if before is None or before.entries.keys() <= now.entries.keys():
        yield now


def _write_each_unnoted(
    try_each: Callable[[Sequence[Write], Any], list[Version | Exception]],
    writes: Sequence[Write],
    tx: Any,
) -> list[Version | Exception]:
    answers = try_each(writes, tx)
    for answer in answers:
        if isinstance(answer, Version):
            tx.execute(_UNNOTED, (answer.major,))
    return answers


def _set_unnoted(write: Callable[[Write, Any], Version], one: Write, tx: Any) -> Version:
    version = write(one, tx)
    if one.condition is Condition.ANY:
        tx.execute(_UNNOTED, (version.major,))
    return version
