"""Embedded stores that one record of another program harms."""

from collections.abc import Callable
from concurrent.futures import Future

from kip30.driver import Context, Watch
from kip30.driver.kit.futures import failed
from kip30.driver.records import Snapshot, Target
from kip30.errors import StoreError
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate

Sink = Callable[[Snapshot], None]
SoundSnapshot = Callable[[Target], Future[Snapshot]]
SoundWatch = Callable[[Target, Sink], Watch]


class OneHidesAll(EmbeddedBackend):
    """Reads nothing of a target in which one record cannot be read."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "snapshot", _all_or_nothing)


class OneSilencesWatch(EmbeddedBackend):
    """Tells of no change while one record of a target cannot be read."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "watch", _silent_beside_unreadable)


class NeverReadableAgain(EmbeddedBackend):
    """Leaves out of its watches every record that it once could not read."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "watch", _unforgiving)


def _all_or_nothing(snapshot: SoundSnapshot, target: Target) -> Future[Snapshot]:
    found = snapshot(target)
    reasons = found.result().unreadable.values()
    return failed(StoreError("; ".join(reasons))) if reasons else found


def _silent_beside_unreadable(watch: SoundWatch, target: Target, sink: Sink) -> Watch:
    def tell(snapshot: Snapshot) -> None:
        if not snapshot.unreadable:
            sink(snapshot)

    return watch(target, tell)


def _unforgiving(watch: SoundWatch, target: Target, sink: Sink) -> Watch:
    once: dict[str, str] = {}

    def tell(snapshot: Snapshot) -> None:
        once.update(snapshot.unreadable)
        entries = {name: one for name, one in snapshot.entries.items() if name not in once}
        sink(snapshot._replace(entries=entries, unreadable=dict(once), delta=None))

    return watch(target, tell)
