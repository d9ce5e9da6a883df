"""Vacant services are removed, and no epoch comes again, also with a claim between its steps."""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any

import pytest

from kip30 import Fence, FencedError, PluginLocator, UnavailableError
from kip30.driver.kit.futures import failed
from kip30.driver.kit.operation import Steps
from kip30.driver.pruning import prune
from kip30.driver.records import Kind
from kip30_backends.cassandra import election
from kip30_backends.cassandra.election import CassandraElection, Pruning
from tests.unit.clients import Open

from .admin import Admin

OLDER = (
    "UPDATE kip30.leaders SET epoch = %s WHERE root = %s AND service = %s IF epoch = %s"
    " AND fenced = null"
)
"""Statement by which a kip30 that does not know births claims an epoch, except for the seat."""

UNLED = "UPDATE kip30.leaders SET epoch = 0 WHERE root = %s AND service = %s"


def led(client: PluginLocator, service: str = "s") -> int:
    with client.leader_election(service).lead("c", "") as term:
        return term.epoch


def pruned(client: PluginLocator, unused: float = 0) -> int:
    return prune(client.backend, unused, dry_run=False).get(Kind.SERVICE, 0)


def left(admin: Admin, namespace: str) -> set[str]:
    found = admin.tell("SELECT DISTINCT root, service FROM kip30.leaders")
    return {row["service"] for row in found if row["root"] == namespace}


def test_nothing_is_left_but_one_number(open_client: Open, admin: Admin, namespace: str) -> None:
    client = open_client()
    for number in range(3):
        led(client, f"s{number}")
    assert pruned(client, 3600) == 0
    assert pruned(client) == 3
    assert left(admin, namespace) == {""}
    assert pruned(client) == 0


def test_few_are_removed_in_one_call(open_client: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "_ROWS", 3)
    monkeypatch.setattr(election, "_AT_ONCE", 2)
    client = open_client()
    for number in range(7):
        led(client, f"s{number}")
    with client.leader_election("held").lead("c", ""):
        first = client.backend.prune(0, dry_run=True).result()
        assert first.counts[Kind.SERVICE] <= 2
        assert first.after
        assert prune(client.backend, 0, dry_run=True)[Kind.SERVICE] == 7
        assert pruned(client) == 7
    assert pruned(client) == 1


def test_only_one_root_is_pruned(open_client: Open) -> None:
    client, other = open_client(), open_client(**{"plugin.namespace": "other-root"})
    led(client)
    first = led(other)
    assert pruned(client) == 1
    assert led(other) == first + 1
    assert pruned(other) == 1


def meanwhile(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Call *work* when the next claim has read the floor, before it takes the seat.

    On another thread: the one that brings answers must not wait for one.
    """
    take: Any = CassandraElection._take

    def once_done(self: CassandraElection, *arguments: Any) -> Steps[Any]:
        monkeypatch.setattr(CassandraElection, "_take", take)
        ended: Future[None] = Future()

        def go_on() -> None:
            try:
                work()
            finally:
                ended.set_result(None)

        Thread(target=go_on).start()
        yield ended
        return (yield from take(self, *arguments))

    monkeypatch.setattr(CassandraElection, "_take", once_done)


def test_a_claim_that_read_the_floor_before_a_prune_is_not_granted_after_it(
    open_client: Open, admin: Admin, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, quick = open_client(), open_client()
    seen = list[int]()

    def lead_and_prune() -> None:
        seen.extend([led(quick), led(quick), pruned(quick)])
        admin.tell(UNLED, namespace, "s")  # as the late one found it, but for the creation

    meanwhile(monkeypatch, lead_and_prune)
    claim: Any = late.backend.election.claim("s", "c", "nonce", b"").result()
    assert seen == [1, 2, 1]
    assert claim.entry.version.major > 2


def cut_off(*_: object) -> Steps[Any]:
    """Send a request that gets no answer."""
    yield failed(UnavailableError("cut off"))


@pytest.mark.parametrize("step", ["_remove_one", "_delete"])
def test_a_prune_that_ends_half_way_harms_nothing(
    open_client: Open, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    client = open_client()
    epochs = [led(client)]
    with client.leader_election("s").lead("c", "") as term:
        client.storage().set("k", "v", fence=term)
        epochs.append(term.epoch)
    with monkeypatch.context() as patch:
        patch.setattr(Pruning, step, cut_off)
        with pytest.raises(UnavailableError):
            pruned(client)
    with client.leader_election("s").lead("c", "") as term:
        client.storage().set("k", "v", fence=term)
        epochs.append(term.epoch)
    assert pruned(client) == 1
    for epoch in epochs:
        with pytest.raises(FencedError):
            client.storage().set("k", "late", fence=Fence("s", epoch))
    epochs.append(led(client))
    assert epochs == sorted(set(epochs))


def test_fences_hold_after_the_next_prune(open_client: Open) -> None:
    client, epochs = open_client(), list[int]()
    for _ in range(3):
        with client.leader_election("s").lead("c", "") as term:
            client.storage().set("k", "v", fence=term)
            epochs.append(term.epoch)
        led(client, "other")
        assert pruned(client) == 2
        for epoch in epochs:
            with pytest.raises(FencedError):
                client.storage().set("k", "late", fence=Fence("s", epoch))
    assert epochs == sorted(set(epochs))


def test_a_claim_that_ends_half_way_harms_nothing(
    open_client: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = open_client(), open_client()
    with monkeypatch.context() as patch:
        patch.setattr(CassandraElection, "_take", cut_off)
        for service in ("s", "t"):
            with pytest.raises(UnavailableError):
                client.backend.election.claim(service, "c", "nonce", b"").result()
    assert led(other, "t") == 1
    assert pruned(other) == 2
    assert [led(other), led(client), led(client, "t")] == [3, 4, 3]


def test_an_older_kip30_may_claim_what_was_marked(
    open_client: Open, admin: Admin, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, answers = open_client(), list[Any]()

    def claim_as_an_older_one() -> None:
        answers.extend(admin.tell(OLDER, 1, namespace, "s", 0))

    meanwhile(monkeypatch, claim_as_an_older_one)
    assert led(client) == 2
    assert answers[0]["[applied]"]


@pytest.mark.parametrize("epoch", [2**63 - 1, 2**62, -5])
def test_epochs_that_no_election_gave_stay(
    open_client: Open, admin: Admin, namespace: str, epoch: int
) -> None:
    client = open_client()
    plant = "UPDATE kip30.leaders SET epoch = %s WHERE root = %s AND service = %s"
    admin.tell(plant, epoch, namespace, "planted")
    led(client)
    assert pruned(client) == 1
    assert left(admin, namespace) == {"", "planted"}
    assert led(client) == 3


def test_a_service_without_a_number_that_has_no_birth(
    open_client: Open, admin: Admin, namespace: str
) -> None:
    client = open_client()
    admin.tell(UNLED, namespace, "s")
    assert led(client) == 1
