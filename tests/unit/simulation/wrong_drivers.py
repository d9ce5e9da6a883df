"""The toy store with one mistake of its author each, which a run on a bad network must convict."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from toystore import ToyBackend
from toystore.election import ToyElection
from toystore.membership import ToyMembership
from toystore.memory import Memory
from toystore.session import Sessions
from toystore.settings import ToySettings
from toystore.storage import ToyStorage
from toystore.watch import Watches
from typing_extensions import override

from kip30.driver import Backend, Context, Watch
from kip30.driver.kit import refusals
from kip30.driver.kit.watch import Observe, Sink, WatchHandle
from kip30.driver.records import Claim, Entry, HeldByOther, Snapshot, Target, Version, Write
from kip30.names import Key


class _RefusingElection(ToyElection):
    """Refuses a claim if there is any leader, also the one whose nonce the claim has."""

    @override
    def _claim(self, target: Target, nonce: str, data: bytes) -> Claim | HeldByOther:
        if self._memory.table(target):
            return HeldByOther(by=self._memory.look(target))
        return super()._claim(target, nonce, data)


class RefusesRepeatedClaims(ToyBackend):
    @override
    def __init__(self, context: Context, settings: ToySettings) -> None:
        super().__init__(context, settings)
        self.election = _RefusingElection(self._memory, self._sessions)


class _TakingElection(ToyElection):
    """Looks for the candidate's own record alone, and takes the service from any other one."""

    @override
    def _claim(self, target: Target, nonce: str, data: bytes) -> Claim | HeldByOther:
        for name in [name for name in self._memory.table(target) if name != target.name]:
            self._memory.remove(Target(target.kind, target.scope, name))
        return super()._claim(target, nonce, data)


class TakesFromLeaders(ToyBackend):
    @override
    def __init__(self, context: Context, settings: ToySettings) -> None:
        super().__init__(context, settings)
        self.election = _TakingElection(self._memory, self._sessions)


class _CountingElection(ToyElection):
    """Counts the terms of its own client, and takes that number for the epoch."""

    _terms = 0

    @override
    def _claim(self, target: Target, nonce: str, data: bytes) -> Claim | HeldByOther:
        if not self._memory.table(target):
            self._terms += 1
            entry = Entry(Version(self._terms), nonce, data)
            self._memory.replace(target, entry, self._sessions.lease())
        return super()._claim(target, nonce, data)


class CountsItsOwnTerms(ToyBackend):
    @override
    def __init__(self, context: Context, settings: ToySettings) -> None:
        super().__init__(context, settings)
        self.election = _CountingElection(self._memory, self._sessions)


class _OverwritingMembership(ToyMembership):
    """Compares the version of the claim, and not which record it has."""

    @override
    def _replace(self, target: Target, claim: Claim, nonce: str, data: bytes) -> Claim:
        held = self._memory.table(target).get(target.name)
        if held is None or held.entry.version != claim.entry.version:
            raise refusals.not_member(target.scope, target.name)
        entry = claim.entry._replace(nonce=nonce, data=data)
        record = self._memory.replace(target, entry, claim.lease)
        return Claim(target.name, record.entry, claim.lease, self._memory.revision)


class LetsLateUpdatesWin(ToyBackend):
    @override
    def __init__(self, context: Context, settings: ToySettings) -> None:
        super().__init__(context, settings)
        self.membership = _OverwritingMembership(self._memory, self._sessions)


class _NoncesInClient(ToyStorage):
    """Keeps the nonce of a write in the client, and takes any record of the key for that write."""

    @override
    def __init__(self, memory: Memory, sessions: Sessions) -> None:
        super().__init__(memory, sessions)
        self._nonces: dict[Key, str] = {}

    @override
    def _write(self, write: Write) -> Version:
        self._nonces[write.key] = write.nonce
        return super()._write(write)

    @override
    def _entry(self, key: Key) -> Entry | None:
        found = super()._entry(key)
        return found and found._replace(nonce=self._nonces.get(key, found.nonce))


class TakesOtherRecordsForItsOwn(ToyBackend):
    @override
    def __init__(self, context: Context, settings: ToySettings) -> None:
        super().__init__(context, settings)
        self.storage = _NoncesInClient(self._memory, self._sessions)


class _LaterWatch(WatchHandle):
    has_begun = False

    @override
    def deliver(self, snapshot: Snapshot) -> bool:
        if self.has_begun:
            return super().deliver(snapshot)
        self.has_begun = True
        return False


class _LaterWatches(Watches):
    """Delivers changes, and not the state that a target has when its watch begins."""

    @override
    def add(self, target: Target, sink: Sink) -> Watch:
        watch = _LaterWatch(target, sink, self._forget)
        self._open[watch] = partial(self._deliver, watch)
        self._memory.watch(target, self._open[watch])
        return watch


class DeliversChangesAlone(ToyBackend):
    @override
    def __init__(self, context: Context, settings: ToySettings) -> None:
        super().__init__(context, settings)
        self._watches = _LaterWatches(self._memory, self._sessions)
        self.observe = Observe(self._watches.read, self._watches.add)


MISTAKES: Final[Mapping[type[Backend], str]] = {
    TakesFromLeaders: "D02",
    CountsItsOwnTerms: "D03",
    RefusesRepeatedClaims: "D05",
    LetsLateUpdatesWin: "D06",
    TakesOtherRecordsForItsOwn: "D09",
    DeliversChangesAlone: "D07",
}
"""Of each wrong backend, the promise of the core that it breaks."""
