"""Leaders: one key per service, held by the session; the write that made it is the epoch."""

from concurrent.futures import Future

from typing_extensions import override

from kip30.driver import ElectionDriver
from kip30.driver.key_layout import Paths
from kip30.driver.records import Claim, Entry, Held, Snapshot, Version
from kip30_backends.consul.claims import DELAYED_SECONDS, Bid, Claims, Delayed, Refused
from kip30_backends.consul.transactions import key_of


def leader_key(paths: Paths, service: str) -> str:
    """Return the key of the leader of *service*."""
    return f"{key_of(paths.service(service))}/leader"


class ConsulElection(ElectionDriver):
    """Services and who leads them."""

    def __init__(self, paths: Paths, claims: Claims) -> None:
        """Keep leaders where *paths* places them."""
        self._paths = paths
        self._claims = claims

    @override
    def claim(self, service: str, candidate: str, nonce: str, data: bytes) -> Future[Claim | Held]:
        key = leader_key(self._paths, service)
        bid = Bid(key, key, candidate, nonce, data, label=candidate)
        return self._claims.try_to_take(bid, _held_or_won)

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        return self._claims.give_up(leader_key(self._paths, service), claim)


def _held_or_won(answer: Claim | Refused | Delayed) -> Claim | Held:
    if isinstance(answer, Claim):
        return answer
    if isinstance(answer, Delayed):
        return Held(Snapshot(answer.order, {}), DELAYED_SECONDS)
    nonce, candidate, data = answer.holder.unsealed()
    leader = Entry(Version(answer.holder.created), nonce, data)
    return Held(Snapshot(answer.order, {candidate: leader}))
