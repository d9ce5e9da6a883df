"""Embedded stores that do not know a claim or a record by its nonce."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from kip30.driver import Context
from kip30.driver.records import Claim, Condition, HeldByOther, Version, Write, new_nonce
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings

from .mutation import mutate


class ClaimsServiceOnce(EmbeddedBackend):
    """Refuses a claim of a service that is repeated."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.election, "claim", _claim_otherwise)


class UpdateKeepsNonce(EmbeddedBackend):
    """Keeps the nonce of a record that is updated."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write", self._write)

    def _write(self, write: Callable[[Write], Future[Version]], one: Write) -> Future[Version]:
        return write(self._with_former_nonce(one))

    def _with_former_nonce(self, one: Write) -> Write:
        (found,) = self.storage.read([one.key]).result()
        if found is None or one.data is None or one.condition is Condition.ABSENT:
            return one
        return one._replace(nonce=found.nonce)


class ManyShareANonce(EmbeddedBackend):
    """Gives the records that are written together a nonce of their own."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.storage, "write_many", _write_all)


class ReleasesByNonce(EmbeddedBackend):
    """Keeps a member whose record was replaced after the claim that is released."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "_release", _release_by_nonce)


class ReleasesLaterClaim(EmbeddedBackend):
    """Releases a later claim that has the nonce of the one that is released."""

    def __init__(self, context: Context, settings: EmbeddedSettings) -> None:
        super().__init__(context, settings)
        mutate(self.membership, "_release", _release_later)


def _release_later(
    release: Callable[[str, Claim, Any], None], group: str, claim: Claim, tx: Any
) -> None:
    place = group.encode(), claim.name.encode(), claim.entry.nonce
    later = tx.execute("SELECT born FROM member WHERE scope = ? AND id = ? AND nonce = ?", place)
    found = later.fetchone()
    if found is not None:
        claim = claim._replace(handle=claim.handle._replace(born=found[0]))
    release(group, claim, tx)


def _release_by_nonce(
    release: Callable[[str, Claim, Any], None], group: str, claim: Claim, tx: Any
) -> None:
    place = group.encode(), claim.name.encode(), claim.entry.nonce
    found = tx.execute("SELECT 1 FROM member WHERE scope = ? AND id = ? AND nonce = ?", place)
    if found.fetchone() is not None:
        release(group, claim, tx)


def _claim_otherwise(
    claim: Callable[[str, str, str, bytes], Future[Claim | HeldByOther]],
    service: str,
    candidate: str,
    _nonce: str,
    data: bytes,
) -> Future[Claim | HeldByOther]:
    return claim(service, candidate, new_nonce(), data)


def _write_all(
    write_many: Callable[[Sequence[Write]], list[Future[Version]]], writes: Sequence[Write]
) -> list[Future[Version]]:
    nonce = new_nonce()
    return write_many([one._replace(nonce=nonce) for one in writes])
