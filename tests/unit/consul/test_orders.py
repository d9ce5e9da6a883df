"""One order over the answers about each place, also of a store that began to count anew."""

from kip30_backends.consul.orders import Orders

HERE, THERE = "here", "there"


def test_indexes_order_answers() -> None:
    orders = Orders()
    seen = [orders.of(HERE, at, orders.mark(HERE)) for at in (5, 5, 9)]
    assert seen == sorted(seen)
    assert seen[0] == seen[1] < seen[2]


def test_an_answer_that_was_overtaken_is_the_older_one() -> None:
    orders = Orders()
    sent = orders.mark(HERE)
    newer = orders.of(HERE, 9, sent)
    assert orders.of(HERE, 7, sent) < newer


def test_another_place_may_be_behind() -> None:
    orders = Orders()
    here = orders.of(HERE, 100, orders.mark(HERE))
    orders.of(THERE, 2, orders.mark(THERE))
    assert orders.of(HERE, 100, orders.mark(HERE)) == here


def test_a_smaller_index_than_was_known_begins_an_era() -> None:
    orders = Orders()
    before = orders.of(HERE, 100, orders.mark(HERE))
    first = orders.of(HERE, 2, orders.mark(HERE))
    second = orders.of(HERE, 3, orders.mark(HERE))
    assert before < first < second
    assert orders.of(HERE, 50, orders.mark(HERE)) > second


def test_an_answer_from_before_stays_before() -> None:
    orders = Orders()
    orders.of(HERE, 100, orders.mark(HERE))
    known = orders.mark(HERE)
    anew = orders.of(HERE, 2, known)
    assert orders.of(HERE, 101, known) < anew


def test_going_back_is_noticed_once() -> None:
    orders = Orders()
    orders.of(HERE, 100, orders.mark(HERE))
    known = orders.mark(HERE)
    assert orders.of(HERE, 2, known) < orders.of(HERE, 3, known)
    assert orders.mark(HERE) == (1, 3)
