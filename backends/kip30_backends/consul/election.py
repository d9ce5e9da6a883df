"""Leaders: one key per service, held by the session; the write that made it is the epoch."""

from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import ElectionDriver
from kip30.driver.key_layout import Paths
from kip30.driver.kit.key_claims import ClaimRequest, Refused
from kip30.driver.kit.record_paths import leader_path
from kip30.driver.records import Claim, HeldByOther, Snapshot
from kip30_backends.consul.claims import DELAYED_SECONDS, ClaimKey, Claims, InLockDelay
from kip30_backends.consul.transactions import key_of


def leader_key(paths: Paths, service: str) -> str:
    """Return the key of the leader of *service*."""
    return key_of(leader_path(paths, service))


class ConsulElection(ElectionDriver):
    """Services and their leaders."""

    def __init__(self, paths: Paths, claims: Claims) -> None:
        """Keep leaders where *paths* places them."""
        self._paths = paths
        self._claims = claims

    @override
    def claim(
        self, service: str, candidate: str, nonce: str, data: bytes
    ) -> Future[Claim | HeldByOther]:
        wanted = ClaimRequest(self._key(service), candidate, nonce, data, label=candidate)
        return self._claims.try_to_take(wanted, _held_or_won)

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        return self._claims.give_up(self._key(service), claim)

    def _key(self, service: str) -> ClaimKey:
        key = leader_key(self._paths, service)
        return ClaimKey(key, key)


def _held_or_won(answer: Claim | Refused | InLockDelay) -> Claim | HeldByOther:
    if isinstance(answer, InLockDelay):
        return HeldByOther(Snapshot(answer.order, {}), DELAYED_SECONDS)
    return answer.held() if isinstance(answer, Refused) else answer
