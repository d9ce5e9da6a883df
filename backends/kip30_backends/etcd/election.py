"""Leaders: one key per service, tied to the lease; the revision it was created at is the epoch."""

from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import ElectionDriver
from kip30.driver.key_layout import Paths
from kip30.driver.records import Claim, Entry, Held, Snapshot, Version
from kip30_backends.etcd.claims import Bid, Claims, Refused
from kip30_backends.etcd.snapshots import leader_key


class EtcdElection(ElectionDriver):
    """Services and who leads them."""

    def __init__(self, paths: Paths, claims: Claims) -> None:
        """Keep leaders where *paths* places them."""
        self._paths = paths
        self._claims = claims

    @override
    def claim(self, service: str, candidate: str, nonce: str, data: bytes) -> Future[Claim | Held]:
        key = leader_key(self._paths, service)
        return self._claims.take(Bid(key, candidate, nonce, data, label=candidate), _held_or_won)

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        return self._claims.give_up(leader_key(self._paths, service), claim)


def _held_or_won(answer: Claim | Refused) -> Claim | Held:
    if not isinstance(answer, Refused):
        return answer
    nonce, candidate, data = answer.holder
    leader = Entry(Version(answer.created), nonce, data)
    return Held(Snapshot(answer.order, {candidate: leader}))
