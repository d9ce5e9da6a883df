"""Release of claims whose session has ended in the store."""

from typing import Any

from kip30.driver.records import Claim, Kind, Target, new_nonce
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open


def test_a_claim_of_an_ended_session_is_released_without_a_request(
    open_client: Open, ensemble: Ensemble
) -> None:
    backend: Any = open_client().backend
    member = backend.membership.claim("g", "m", new_nonce(), b"").result()
    leader = backend.election.claim("s", "c", new_nonce(), b"").result()
    assert isinstance(leader, Claim)
    backend.faults.expire_session()
    backend.membership.claim("g", "other", new_nonce(), b"").result()
    assert not leader.lease.is_valid()
    with ensemble.frozen():
        backend.membership.release("g", member).result()
        backend.election.release("s", leader).result()
    groups = backend.observe.snapshot(Target(Kind.GROUP, "g")).result()
    assert groups.entries.keys() == {"other"}
    assert not backend.observe.snapshot(Target(Kind.SERVICE, "s")).result().entries
