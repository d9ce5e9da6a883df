"""New claims after a lost session, also under the nonce of the earlier claim."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

import pytest

from kip30 import Kip30Error
from kip30.driver import Backend
from kip30.driver.records import Claim, HeldByOther, new_nonce
from kip30_conformance.polling import eventually
from kip30_conformance.servers import Ensemble
from tests.unit.clients import Open

TypedRequest = Callable[[Backend, str], Future[Claim] | Future[Claim | HeldByOther]]


@pytest.mark.parametrize(
    "ask",
    [
        lambda backend, nonce: backend.membership.claim("g", "m", nonce, b""),
        lambda backend, nonce: backend.election.claim("s", "c", nonce, b""),
    ],
    ids=["member", "leader"],
)
def test_a_claim_after_the_session_ended_is_new_despite_its_nonce(
    ensemble: Ensemble, open_client: Open, ask: TypedRequest
) -> None:
    nonce = new_nonce()
    with ensemble.link() as link:
        backend = open_client(**link.settings()).backend

        def claimed() -> Claim | None:
            with suppress(Kip30Error):
                answer = ask(backend, nonce).result()
                return answer if isinstance(answer, Claim) else None
            return None

        first = eventually(claimed, what="it is claimed")
        link.cut()
        eventually(lambda: not first.lease.is_valid(), what="its session is over")
        link.heal()
        second = eventually(claimed, what="it is claimed again")
    assert second.entry.version > first.entry.version
    assert second.lease is not first.lease
