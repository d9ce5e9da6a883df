"""One order over all answers, also of a store that began to count again."""

from dataclasses import dataclass

from kip30_backends.etcd.observation_order import AnswerOrder


@dataclass
class Header:
    revision: int
    cluster_id: int = 1
    raft_term: int = 1
    member_id: int = 1


def test_revisions_order_answers() -> None:
    orders = AnswerOrder()
    seen = [orders.of(Header(revision), orders.latest) for revision in (5, 5, 9)]
    assert seen == sorted(seen)
    assert seen[0] == seen[1] < seen[2]


def test_an_answer_that_was_overtaken_is_the_older_one() -> None:
    orders = AnswerOrder()
    sent = orders.latest
    newer = orders.of(Header(9), sent)
    assert orders.of(Header(7), sent) < newer


def test_a_smaller_revision_than_was_known_begins_an_era() -> None:
    orders = AnswerOrder()
    before = orders.of(Header(100), orders.latest)
    known = orders.latest
    first = orders.of(Header(2), known)
    second = orders.of(Header(3), known)
    assert before < first < second
    assert orders.of(Header(50), orders.latest) > second


def test_another_cluster_begins_an_era() -> None:
    orders = AnswerOrder()
    before = orders.of(Header(3, cluster_id=1), orders.latest)
    assert orders.of(Header(100, cluster_id=2), orders.latest) > before


def test_an_answer_from_before_stays_before() -> None:
    orders = AnswerOrder()
    orders.of(Header(100), orders.latest)
    known = orders.latest
    anew = orders.of(Header(2), known)
    assert orders.of(Header(101), known) < anew
