"""Embedded stores whose incarnations are in no order, and a core that joins all members again."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar
from unittest.mock import patch

from kip30.driver import Context
from kip30.driver.kit.futures import mapped
from kip30.driver.records import Claim, Version
from kip30.runtime.member_phases import MemberPhases, Phase
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate

SoundClaim = Callable[..., Future[Claim]]


class CountsEachIdForItself(EmbeddedBackend):
    """Gives a member the number of joins of its id as its version."""

    joins: ClassVar = Counter[str]()  # of all clients, as if they were in the store

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "claim", self._claim)

    def _claim(self, claim: SoundClaim, *given: Any) -> Future[Claim]:
        return mapped(claim(*given), self._counted)

    def _counted(self, claim: Claim) -> Claim:
        self.joins[claim.name] += 1
        return _with_version(claim, self.joins[claim.name])


class KeepsThePlace(EmbeddedBackend):
    """Gives a member that joins again the version that its id had first."""

    first: ClassVar = dict[str, int]()  # of all clients, as if they were in the store

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "claim", self._claim)

    def _claim(self, claim: SoundClaim, *given: Any) -> Future[Claim]:
        return mapped(claim(*given), self._again)

    def _again(self, claim: Claim) -> Claim:
        born = claim.entry.version.major
        return _with_version(claim, self.first.setdefault(claim.name, born))


class JoinsAllAgain(EmbeddedBackend):
    """Is used by a core that joins every member again, even one that must not rejoin."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        patch.object(MemberPhases, "lose", _lose_for_a_while).start()


class KeepsTheId(EmbeddedBackend):
    """Is used by a core that calls a member over, and keeps its id."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        patch.object(MemberPhases, "is_over", lambda _: False).start()


def _with_version(claim: Claim, number: int) -> Claim:
    return claim._replace(entry=claim.entry._replace(version=Version(number)))


def _lose_for_a_while(phases: MemberPhases) -> Phase | None:
    return Phase.LOST if phases.enter(Phase.LOST) else None
