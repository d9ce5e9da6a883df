"""The order of reads that are under way at the same time."""

import random
from collections.abc import Mapping
from itertools import pairwise

import pytest

from kip30.driver.records import Entry, Kind, Target, Version
from kip30_backends.cassandra.observation_order import AnswerOrder, OverlappingReads

GROUP = Target(Kind.GROUP, "g")
STEPS = 400
READERS = 4


def state(number: int) -> Mapping[str, Entry]:
    return {"m": Entry(Version(number), str(number), b"")}


class Reads:
    """Reads of one target, each begun, seen and answered when the test says so."""

    def __init__(self) -> None:
        self.orders = AnswerOrder()
        self.overlaps = OverlappingReads(self.orders)

    def begin(self) -> int:
        self.overlaps.begin(GROUP)
        return self.orders.next()

    def end(self, order: int, seen: int) -> bool:
        accepted = self.overlaps.accept(GROUP, order, state(seen))
        self.overlaps.end(GROUP)
        return accepted


def test_reads_one_after_the_other_are_accepted_and_nothing_is_kept_of_them() -> None:
    reads = Reads()
    for seen in (1, 1, 2, 1):
        assert reads.end(reads.begin(), seen)
        assert len(reads.overlaps) == 0


def test_overlapping_reads_that_find_the_same_are_accepted() -> None:
    reads = Reads()
    orders = [reads.begin() for _ in range(3)]
    assert [reads.end(order, 1) for order in orders] == [True] * 3


@pytest.mark.parametrize("first", [0, 1], ids=["first sent", "last sent"])
def test_of_overlapping_reads_that_differ_the_first_answer_is_accepted(first: int) -> None:
    reads = Reads()
    orders = [reads.begin() for _ in range(2)]
    assert reads.end(orders[first], 1)
    assert not reads.end(orders[1 - first], 2)
    assert reads.end(reads.begin(), 2)


def test_a_read_that_finds_what_became_known_after_it_was_sent_is_refused() -> None:
    reads = Reads()
    slow, old = reads.begin(), reads.begin()
    assert reads.end(old, 1)
    assert reads.end(reads.begin(), 2)
    assert not reads.end(slow, 2)


def test_a_read_that_was_given_up_is_answered_in_vain() -> None:
    reads = Reads()
    order = reads.begin()
    reads.overlaps.end(GROUP)
    assert reads.overlaps.accept(GROUP, order, state(1))
    assert len(reads.overlaps) == 0


@pytest.mark.parametrize("seed", range(100))
def test_accepted_reads_in_their_order_never_go_back(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311  a test that can be repeated
    reads, now = Reads(), 0
    accepted: list[tuple[int, int]] = []
    under_way: dict[int, int | None] = {}
    for _ in range(STEPS):
        now += chance.random() < 0.3
        if len(under_way) < READERS and chance.random() < 0.5:
            under_way[reads.begin()] = None
        elif under_way:
            order = chance.choice(list(under_way))
            seen = under_way[order]
            if seen is None:
                under_way[order] = now
            elif reads.end(order, seen):
                accepted.append((order, under_way.pop(order) or 0))
            else:
                del under_way[order]
    assert len(accepted) > STEPS / 20
    for (_, earlier), (_, later) in pairwise(sorted(accepted)):
        assert earlier <= later
