"""Embedded stores whose views of a group are wrong."""

from collections.abc import Callable
from concurrent.futures import Future

from kip30.driver import Context
from kip30.driver.kit.futures import mapped
from kip30.driver.records import Claim, Kind, Snapshot, Target
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate

SoundReplace = Callable[[str, Claim, str, bytes], Future[Claim]]
SoundSnapshot = Callable[[Target], Future[Snapshot]]


class OrderStandsStill(EmbeddedBackend):
    """Gives different states of a group the same order."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "snapshot", self._snapshot)

    def _snapshot(self, snapshot: SoundSnapshot, target: Target) -> Future[Snapshot]:
        read = snapshot(target)
        if target.kind is not Kind.GROUP:
            return read
        return mapped(read, lambda one: one._replace(order=1))


class LosesUpdates(EmbeddedBackend):
    """Acknowledges an update of a member, and keeps the former data."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "replace", self._replace)

    def _replace(
        self, replace: SoundReplace, group: str, claim: Claim, nonce: str, _data: bytes
    ) -> Future[Claim]:
        return replace(group, claim, nonce, claim.entry.data)
