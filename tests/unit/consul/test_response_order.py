"""One order over all responses about each place, also of a store that restarted its count."""

import threading
from collections.abc import Iterator

import pytest

from kip30_backends.consul import ConsulBackend
from kip30_backends.consul.observation_order import AnswerOrder, OrderMark
from tests.unit.clients import Open

HERE, THERE = "here", "there"


@pytest.fixture
def orders() -> AnswerOrder:
    return AnswerOrder()


@pytest.fixture
def held(orders: AnswerOrder) -> OrderMark:
    """Return a mark that holds what is known of `HERE`, as a watch does."""
    return orders.mark(HERE)


def _told(orders: AnswerOrder, *indexes: int, of: str = HERE) -> Iterator[int]:
    """Yield the orders of responses, each requested after the one before."""
    return (orders.of(index, orders.mark(of)) for index in indexes)


@pytest.mark.usefixtures("held")
class TestHeld:
    """A place that is watched."""

    def test_indexes_order_answers(self, orders: AnswerOrder) -> None:
        one, same, later = _told(orders, 5, 5, 9)
        assert one == same < later

    def test_an_answer_that_was_overtaken_is_the_older_one(self, orders: AnswerOrder) -> None:
        sent = orders.mark(HERE)
        newer = orders.of(9, sent)
        assert orders.of(7, sent) < newer

    def test_another_place_may_be_behind(self, orders: AnswerOrder) -> None:
        (here,) = _told(orders, 100)
        list(_told(orders, 2, of=THERE))
        assert list(_told(orders, 100)) == [here]

    def test_a_smaller_index_than_was_known_begins_an_era(self, orders: AnswerOrder) -> None:
        before, first, second, third = _told(orders, 100, 2, 3, 50)
        assert before < first < second < third

    def test_an_answer_from_before_stays_before(self, orders: AnswerOrder) -> None:
        list(_told(orders, 100))
        known = orders.mark(HERE)
        anew = orders.of(2, known)
        assert orders.of(101, known) < anew

    def test_going_back_is_noticed_once(self, orders: AnswerOrder) -> None:
        list(_told(orders, 100))
        known = orders.mark(HERE)
        assert orders.of(2, known) < orders.of(3, known)
        assert orders.mark(HERE).at == 3


class TestForgotten:
    """A place that no watch holds."""

    def test_a_later_answer_is_ordered_later_despite_a_smaller_index(
        self, orders: AnswerOrder
    ) -> None:
        (before,) = _told(orders, 100)
        assert before < next(_told(orders, 2))
        assert len(orders) == 0

    def test_it_is_not_forgotten_while_an_answer_is_awaited(self, orders: AnswerOrder) -> None:
        sent = orders.mark(HERE)
        (overtaking,) = _told(orders, 9)
        assert orders.of(7, sent) < overtaking
        assert orders.of(10, orders.mark(HERE)) > overtaking

    def test_no_two_places_get_the_same_era(self, orders: AnswerOrder) -> None:
        holds = [orders.mark(f"place {number}") for number in range(3)]
        for hold in holds:
            orders.of(100, hold)
        eras = {orders.of(1, hold._replace(at=100)) >> 64 for hold in holds}
        assert len(eras) == len(holds)

    def test_as_many_are_known_as_are_asked_about(self, orders: AnswerOrder) -> None:
        largest = 0
        for number in range(10_000):
            list(_told(orders, number, of=f"place {number}"))
            largest = max(largest, len(orders))
        assert largest <= 1


class TestPlaceWithin:
    """A member and its group."""

    def test_is_ordered_with_the_other(self, orders: AnswerOrder) -> None:
        group = orders.mark("g/")
        claim = orders.of(50, group)
        listed = orders.of(100, orders.mark("g/"))
        member = orders.mark("g/m", within="g/")
        assert orders.of(50, member) == claim
        assert claim < orders.of(90, orders.mark("g/m", within="g/")) < listed
        assert orders.of(101, orders.mark("g/")) > listed
        del group

    def test_begins_eras_of_both(self, orders: AnswerOrder) -> None:
        held = [orders.mark("g/"), orders.mark("g/m", within="g/")]
        before = orders.of(100, orders.mark("g/m", within="g/"))
        empty = orders.of(3, orders.mark("g/m", within="g/"))
        claim = orders.of(5, orders.mark("g/"))
        after = orders.of(7, orders.mark("g/m", within="g/"))
        assert before < empty < claim < after
        claim = orders.of(2, orders.mark("g/"))
        assert after < claim < orders.of(4, orders.mark("g/m", within="g/"))
        del held


def test_threads_that_ask_and_forget_see_time_go_on(orders: AnswerOrder) -> None:
    """A response received before a request is sent is ordered before the response to it."""
    lock, store, newest, wrong = threading.Lock(), [0], [-1], list[tuple[int, int]]()

    def ask() -> None:
        for _ in range(2_000):
            known = newest[0]
            sent = orders.mark(HERE)
            with lock:
                store[0] += 1
                index = store[0]
            told = orders.of(index, sent)
            if told <= known:
                wrong.append((told, known))
            del sent
            with lock:
                newest[0] = max(newest[0], told)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(orders) == 0


def test_a_client_that_has_seen_many_places_remembers_those_it_watches(open_client: Open) -> None:
    client = open_client()
    for number in range(300):
        client.group_membership(f"g{number}").membership()
        client.leader_election(f"s{number}").get_leader()
    watched = client.group_membership("watched")
    watched.add_listener(lambda _change: None)
    assert isinstance(client.backend, ConsulBackend)
    assert len(client.backend._resources.calls.orders) <= 2
