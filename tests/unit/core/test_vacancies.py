"""A vacancy: when the next candidate claims, and which clients are notified of it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from kip30 import PluginLocator
from kip30.driver.clock import ManualClock
from kip30.driver.kit.futures import Completed
from kip30.driver.lease import Lease
from kip30.driver.records import Claim, Entry, HeldByOther, Snapshot, Version
from kip30.recipes import Lock
from kip30.recipes.lock import lock_service
from kip30.runtime import campaign, vacancies
from kip30.runtime.candidate_line import line_group
from kip30.runtime.vacancies import Vacancies
from kip30_conformance.driver_faults import wrap
from kip30_conformance.polling import eventually, throughout

from .conftest import OpenClient

pytestmark = pytest.mark.virtual_time

_LEASE = Lease(ManualClock(), sent_at=0, timeout_seconds=10, margin_seconds=1)
_MINE = Claim("a", Entry(Version(3), "mine", b""), _LEASE, 5)


_EPOCHS = {"earlier": 2, "mine": 3, "another": 4}


def _led(order: int, nonce: str) -> Snapshot:
    return Snapshot(order, {"leader": Entry(Version(_EPOCHS[nonce]), nonce, b"")})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def judged(clock: ManualClock) -> Vacancies:
    return Vacancies(clock)


@pytest.mark.parametrize(
    "latest", [_led(5, "mine"), _led(7, "mine"), _led(4, "earlier"), Snapshot(4, {})]
)
def test_a_release_is_a_vacancy_before_the_notification(
    judged: Vacancies, latest: Snapshot
) -> None:
    judged.released(_MINE)
    assert judged.is_turn_of("next", latest, 0)


def test_after_a_release_those_that_are_nearer_have_their_turn(
    judged: Vacancies, clock: ManualClock
) -> None:
    judged.released(_MINE)
    assert not judged.is_turn_of("next", _led(5, "mine"), 1)
    clock.advance(vacancies.TURN_SECONDS)
    assert judged.is_turn_of("next", _led(5, "mine"), 1)


def test_a_released_term_no_longer_leads_but_another_term_does(judged: Vacancies) -> None:
    judged.released(_MINE)
    assert not judged.is_turn_of("next", _led(6, "another"), 0)
    assert judged.is_led(_led(6, "another"))
    assert not judged.is_led(_led(6, "mine"))


def test_a_claim_that_arrives_again_after_its_release_leads(judged: Vacancies) -> None:
    judged.released(_MINE)
    assert judged.is_led(Snapshot(7, {"a": Entry(Version(4), "mine", b"")}))


def test_a_refusal_after_a_release_is_newer_than_it(judged: Vacancies) -> None:
    judged.released(_MINE)
    judged.refused(HeldByOther(_led(6, "another")))
    assert not judged.is_turn_of("next", _led(5, "mine"), 0)
    assert not judged.is_turn_of("next", _led(7, "mine"), 0)


def test_turns_are_counted_from_the_vacancy_and_not_from_an_earlier_one(
    judged: Vacancies, clock: ManualClock
) -> None:
    assert judged.is_turn_of("a", Snapshot(1, {}), 0)
    judged.granted()
    clock.advance(10 * vacancies.TURN_SECONDS)
    assert not judged.is_turn_of("b", Snapshot(9, {}), 1)


def test_candidates_of_one_client_follow_each_other_without_a_notification(
    client: PluginLocator,
) -> None:
    election = client.leader_election("s")
    assert election.nominate("a", "")
    assert not election.nominate("b", "")
    pursued = election._campaign
    shown = eventually(lambda: _if_led(pursued._watch.latest()))
    eventually(lambda: pursued._line.rank == 0)
    pursued._watch.latest = lambda: shown  # type: ignore[method-assign]
    election.resign("a")
    assert election.wait_elected("b", 10)


def _if_led(latest: Snapshot | None) -> Snapshot | None:
    return latest if latest is not None and latest.entries else None


def test_a_client_that_has_nothing_to_do_watches_until_another_leads(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "_LINGER_SECONDS", 1000.0)
    mine, other = (open_client().leader_election("s") for _ in range(2))
    for _ in range(3):
        assert mine.nominate("a", "")
        mine.resign("a")
    throughout(lambda: mine._campaign._watch.feed is not None, seconds=0.5)
    assert other.nominate("b", "")
    eventually(lambda: mine._campaign._watch.feed is None)
    assert not mine.nominate("a", "")
    other.resign("b")
    assert mine.wait_elected("a", 10)


def test_a_term_that_is_over_before_it_is_known_is_lost_while_the_store_is_silent(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = open_client(), open_client()
    election, lost, answers = client.leader_election("s"), threading.Event(), threading.Event()
    pursued = election._campaign

    def take_away(real: Callable[..., Future[Claim]], *arguments: object) -> Future[Claim]:
        claim = real(*arguments).result()
        other.backend.election.release("s", claim).result()
        eventually(lambda: _is_free_after(pursued._watch.latest(), claim))
        return Completed(claim)

    wrap(client.backend.election, "claim", take_away)
    monkeypatch.setattr(pursued, "_keep_in_line", answers.wait)
    try:
        election.nominate("a", "", on_lost=lambda _: lost.set())
        assert lost.wait(5), "the task that waits for the store is the only one that knows"
    finally:
        answers.set()


def _is_free_after(latest: Snapshot | None, claim: Claim) -> bool:
    return latest is not None and latest.order > claim.order and not latest.entries


def test_a_caller_of_a_fair_lock_waits_in_one_line_alone(open_client: OpenClient) -> None:
    first, second = open_client(), open_client()
    grip, lock = Lock(first, "x", fair=True).acquire(), Lock(second, "x", fair=True)
    election = lock._requests.election
    candidates = first.group_membership(line_group(lock_service("x")))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire)
        with grip:
            eventually(lambda: election._campaign._candidacies, what="it stands for election")
            throughout(lambda: not candidates.membership_list(), seconds=0.5)
        waiting.result(10).release()
