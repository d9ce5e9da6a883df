"""Embedded stores that break a rule which only the driver, or many keys at once, can show."""

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Any

from typing_extensions import override

from kip30.driver import Context, Watch
from kip30.driver.kit.futures import Completed, copy, failed, mapped
from kip30.driver.kit.lazy_future import LazyFuture
from kip30.driver.lease import Lease
from kip30.driver.records import (
    Claim,
    Condition,
    Entry,
    Kind,
    NamePage,
    Snapshot,
    Target,
    Version,
    Write,
    new_nonce,
)
from kip30.errors import ClosedError, StoreError
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate

_BOUND = 10_000

SoundRead = Callable[[Sequence[Key]], Future[list[Entry | None]]]
SoundWrite = Callable[[Write], Future[Version]]
SoundClaim = Callable[[str, str, str, bytes], Future[Claim]]
SoundReplace = Callable[[str, Claim, str, bytes], Future[Claim]]
SoundRelease = Callable[[str, Claim], Future[None]]
SoundSnapshot = Callable[[Target], Future[Snapshot]]


class PutManyReplaces(EmbeddedBackend):
    """Forgets the condition of puts that come together."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write_many", _write_all)


class StaleReadsOfMany(EmbeddedBackend):
    """Reads several keys once, and then from a cache."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        self._cache: dict[tuple[Key, ...], list[Entry | None]] = {}
        mutate(self.storage, "read", self._read)

    def _read(self, read: SoundRead, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        if len(keys) == 1:
            return read(keys)
        known = tuple(keys)
        return mapped(read(keys), lambda entries: self._cache.setdefault(known, entries))


class _SentForWaiting(LazyFuture[Any]):
    """A future whose request is sent only by a caller that waits."""

    def __init__(self, work: Callable[[], Future[Any]]) -> None:
        super().__init__()
        self._work = work

    @override
    def send(self) -> None: ...

    @override
    def send_here(self, timeout: float | None) -> None:
        copy(self._work(), self)


class NeverSentUnlessWaitedFor(EmbeddedBackend):
    """Forgets writes of callers that do not wait, but poll or add a callback."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", self._write)

    def _write(self, write: SoundWrite, wanted: Write) -> Future[Version]:
        return _SentForWaiting(lambda: write(wanted))


class ListsTenThousand(EmbeddedBackend):
    """Ends every listing at 10,000 names."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        self._listed = 0
        mutate(self.storage, "list_names", self._list)

    def _list(
        self, names: Callable[..., Future[NamePage]], namespace: str, after: str, limit: int
    ) -> Future[NamePage]:
        self._listed = self._listed if after else 0
        return mapped(names(namespace, after, limit), self._cut)

    def _cut(self, page: NamePage) -> NamePage:
        left = page.names[: _BOUND - self._listed]
        self._listed += len(left)
        return NamePage(left, page.is_last or self._listed == _BOUND)


class EpochsToCome(EmbeddedBackend):
    """Refuses old epochs only."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", self._write)

    def _write(self, write: SoundWrite, one: Write) -> Future[Version]:
        if one.fence is None:
            return write(one)
        shown = self.observe.snapshot(Target(Kind.SERVICE, one.fence.service)).result()
        newest = [entry.version.major for entry in shown.entries.values()]
        unfenced = bool(newest) and one.fence.epoch > newest[0]
        return write(one._replace(fence=None) if unfenced else one)


class ReleasesByName(EmbeddedBackend):
    """Ends any term of the candidate."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.election, "release", self._release)

    def _release(self, release: SoundRelease, service: str, claim: Claim) -> Future[None]:
        shown = self.observe.snapshot(Target(Kind.SERVICE, service)).result()
        entry = shown.entries.get(claim.name, claim.entry)
        return release(service, claim._replace(entry=entry))


class ClaimsOnce(EmbeddedBackend):
    """Takes no notice of the nonce of a claim."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "claim", _claim_otherwise)


class IncarnationMoves(EmbeddedBackend):
    """Gives a member another version with each update."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "replace", _replace_version)


class OrderNeverMoves(EmbeddedBackend):
    """Gives all states of values the same order."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.observe, "snapshot", _without_order)


class UpdatedForEver(EmbeddedBackend):
    """Takes the session of a member that was updated for a living one."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        self._file = self.describe()["file"]
        mutate(self._resources.liveness, "is_alive", self._is_alive)

    def _is_alive(self, is_alive: Callable[..., bool], *given: Any) -> bool:
        return is_alive(*given) or any(map(self._was_updated, given))

    def _was_updated(self, session: object) -> bool:
        if not isinstance(session, str):
            return False
        with closing(sqlite3.connect(self._file, timeout=5)) as database:
            found = "SELECT 1 FROM member WHERE session = ? AND rev <> born"
            return database.execute(found, (session,)).fetchone() is not None


class SaysItDoesNotBlock(EmbeddedBackend):
    """Does its work before it returns, and declares that it does not."""

    is_blocking = False


class WatchEndsWithSession(EmbeddedBackend):
    """Tells of a group for as long as the first session lasts."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        self._leases: list[Lease] = []
        mutate(self.membership, "claim", self._claim)
        mutate(self.observe, "watch", self._watch)

    def _claim(self, claim: SoundClaim, *given: Any) -> Future[Claim]:
        return mapped(claim(*given), self._note)

    def _note(self, claim: Claim) -> Claim:
        self._leases.append(claim.lease)
        return claim

    def _watch(
        self, watch: Callable[..., Watch], target: Target, sink: Callable[[Snapshot], None]
    ) -> Watch:
        def tell(state: Snapshot) -> None:
            if target.kind is not Kind.GROUP or all(one.is_valid() for one in self._leases):
                sink(state)

        return watch(target, tell)


class ForeignErrors(EmbeddedBackend):
    """Hands on what its client library raises once it is closed."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", _untranslated)


class SaysNotDone(EmbeddedBackend):
    """Says of a write that was done that it was refused for its size."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", self._write)

    def _write(self, write: SoundWrite, one: Write) -> Future[Version]:
        done = write(one)
        if one.data is None or len(one.data) <= self.limits.value_bytes:
            return done
        done.result()
        return failed(StoreError("too large"))


def _untranslated(write: SoundWrite, one: Write) -> Future[Version]:
    try:
        return Completed(write(one).result())
    except ClosedError as error:
        return failed(sqlite3.ProgrammingError(str(error)))


def _write_all(write_many: Callable[..., Any], writes: Sequence[Write]) -> Any:
    return write_many(
        [
            one._replace(condition=Condition.ANY) if one.condition is Condition.ABSENT else one
            for one in writes
        ]
    )


def _claim_otherwise(
    claim: SoundClaim, group: str, member_id: str, _nonce: str, data: bytes
) -> Future[Claim]:
    return claim(group, member_id, new_nonce(), data)


def _replace_version(
    replace: SoundReplace, group: str, claim: Claim, nonce: str, data: bytes
) -> Future[Claim]:
    return mapped(
        replace(group, claim, nonce, data),
        lambda done: done._replace(entry=done.entry._replace(version=Version(done.order))),
    )


def _without_order(snapshot: SoundSnapshot, target: Target) -> Future[Snapshot]:
    return mapped(snapshot(target), lambda one: one._replace(order=1))
