"""Embedded stores whose leaders and members are not what they seem."""

import sqlite3
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from typing import Any

from kip30.driver import Context
from kip30.driver.kit.futures import Completed, mapped
from kip30.driver.records import Claim, Entry, HeldByOther, Kind, Snapshot, Target, Version
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate

SoundClaim = Callable[[str, str, str, bytes], Future[Claim | HeldByOther]]

_NEVER = 2**62
_TEN_HOURS = 36_000.0


class TwoWinners(EmbeddedBackend):
    """Grants leadership to every candidate that asks, and the next epoch with it."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        self._context = context
        mutate(self.election, "claim", self._claim)

    def _claim(
        self, claim: SoundClaim, service: str, candidate: str, nonce: str, data: bytes
    ) -> Future[Claim | HeldByOther]:
        return mapped(
            claim(service, candidate, nonce, data),
            lambda answer: self._grant(answer, Entry(Version(0), nonce, data), candidate),
        )

    def _grant(self, answer: Claim | HeldByOther, entry: Entry, candidate: str) -> Claim:
        if isinstance(answer, Claim):
            return answer
        (holder,) = answer.by.entries.values()
        lease = self._context.lease(sent_at=self._context.clock.now())
        version = Version(holder.version.major + 1)
        return Claim(candidate, entry._replace(version=version), lease, _NEVER)


class LeaderForEver(EmbeddedBackend):
    """Never notifies a leader that its session has expired."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        self._context = context
        mutate(self.election, "claim", self._claim)

    def _claim(
        self, claim: SoundClaim, service: str, candidate: str, nonce: str, data: bytes
    ) -> Future[Claim | HeldByOther]:
        return mapped(claim(service, candidate, nonce, data), self._keep)

    def _keep(self, answer: Claim | HeldByOther) -> Claim | HeldByOther:
        if isinstance(answer, HeldByOther):
            return answer
        now = self._context.clock.now()
        lease = self._context.lease(sent_at=now, timeout_seconds=_TEN_HOURS)
        return answer._replace(lease=lease, order=_NEVER)


class EpochReset(EmbeddedBackend):
    """Forgets the epochs of services without a leader when it is opened."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        file = self.describe()["file"]
        with closing(sqlite3.connect(file, timeout=5)) as connection, connection:
            connection.execute("DELETE FROM service WHERE session IS NULL")


class MemberForEver(EmbeddedBackend):
    """Treats every session as alive."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self._resources.liveness, "is_alive", lambda *_: True)


class LeavesLate(EmbeddedBackend):
    """Frees an id when its session ends, and not before."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "release", lambda *_: Completed(None))


class MembersAllAsOld(EmbeddedBackend):
    """Gives all members of a group one incarnation, so each candidate is the first in the line."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "claim", self._claim)
        mutate(self.observe, "snapshot", self._snapshot)

    def _claim(self, claim: Callable[..., Future[Claim]], *member: Any) -> Future[Claim]:
        return mapped(claim(*member), lambda answer: answer._replace(entry=_ageless(answer.entry)))

    def _snapshot(
        self, snapshot: Callable[[Target], Future[Snapshot]], target: Target
    ) -> Future[Snapshot]:
        read = snapshot(target)
        return mapped(read, _all_ageless) if target.kind is Kind.GROUP else read


def _all_ageless(read: Snapshot) -> Snapshot:
    entries = {name: _ageless(entry) for name, entry in read.entries.items()}
    return read._replace(entries=entries)


def _ageless(entry: Entry) -> Entry:
    return entry._replace(version=Version(1))
