"""The choice of the next node, and the numbers of requests."""

import time
from types import SimpleNamespace

import pytest

from kip30_backends.cassandra import observation_order
from kip30_backends.cassandra.calls import ClusterNodes
from kip30_backends.cassandra.client.cluster import ContactPointPolicy
from kip30_backends.cassandra.observation_order import AnswerOrder, Revisions


class Node:
    """A node, told apart by identity."""


class HostOfDriver:
    """The attributes of the driver's host that policies use."""

    datacenter = "dc"

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint


A, B, C = Node(), Node(), Node()
PLACE = ("records", "n")
DAY = 86_400_000_000


def _nodes(*up: Node) -> ClusterNodes:
    return ClusterNodes(lambda: up)


def test_the_plan_is_followed() -> None:
    nodes = _nodes(A, B, C)
    assert nodes.choose(set()) == (A, 2)
    assert nodes.choose({id(A)}) == (B, 1)
    assert nodes.choose({id(A), id(B), id(C)}) is None


def test_one_is_used_as_long_as_it_talks() -> None:
    plans = iter([(A, B), (B, A), (B, A), (A, B)])
    nodes = ClusterNodes(lambda: next(plans))
    assert nodes.choose(set()) == (A, 1)
    assert nodes.choose(set()) == (A, 1)
    nodes.suspect(A)
    assert nodes.choose(set()) == (B, 0)
    nodes.trust(A)
    assert nodes.choose(set()) == (B, 1)


def test_a_silent_node_is_chosen_last() -> None:
    nodes = _nodes(A, B)
    nodes.suspect(A)
    assert nodes.choose(set()) == (B, 0)
    assert nodes.choose({id(B)}) == (A, 0)


def test_a_node_that_responds_again_is_trusted() -> None:
    nodes = _nodes(A, B)
    nodes.suspect(A)
    nodes.trust(A)
    assert nodes.choose(set()) == (A, 1)


def test_if_all_were_silent_all_are_asked() -> None:
    nodes = _nodes(A, B)
    nodes.suspect(A)
    nodes.suspect(B)
    assert nodes.choose(set()) == (A, 1)


def test_revisions_grow_and_are_near_the_time_of_day() -> None:
    revisions = Revisions()
    before = time.time_ns() // 1000
    made = [revisions.next() for _ in range(1000)]
    assert made == sorted(set(made))
    assert before <= made[0] <= time.time_ns() // 1000 + 1000


def test_revisions_overtake_what_was_seen() -> None:
    revisions = Revisions()
    ahead = revisions.next() + 3_600_000_000
    revisions.observe(PLACE, ahead)
    revisions.observe(PLACE, None)
    assert revisions.next() == ahead + 1


def test_a_partition_that_was_far_ahead_is_overtaken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    revisions, now = Revisions(), time.time_ns() // 1000
    monkeypatch.setattr(observation_order, "time", SimpleNamespace(time_ns=lambda: 1000 * now))
    ahead = now + 2 * DAY
    revisions.observe(PLACE, ahead)
    assert revisions.next(PLACE) == ahead + 1
    now += 3 * DAY
    newer = now + 5  # by a client whose clock is right
    revisions.observe(PLACE, newer)
    assert revisions.next(PLACE) > newer


def test_a_revision_is_not_proposed_twice_once_its_partition_is_not_far_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    revisions, now = Revisions(), time.time_ns() // 1000
    monkeypatch.setattr(observation_order, "time", SimpleNamespace(time_ns=lambda: 1000 * now))
    ahead = now + 2 * DAY
    revisions.observe(PLACE, ahead)
    proposed = revisions.next(PLACE)
    now += 3 * DAY // 2  # less than a day ahead
    revisions.observe(PLACE, ahead)  # what is proposed may have been sent, and not answered
    assert revisions.next(PLACE) > proposed


def test_the_next_watch_order_exceeds_the_last_stamp() -> None:
    orders = AnswerOrder()
    polled = orders.next()
    assert orders.last_stamp < polled
    last_stamp = orders.stamp()
    assert orders.last_stamp == last_stamp > polled
    assert orders.next() > last_stamp


def test_a_policy_of_one_contact_point_ignores_the_nodes_that_it_reports() -> None:
    point, reported = HostOfDriver("a"), HostOfDriver("b")
    policy = ContactPointPolicy(local_dc="dc")
    policy.populate(SimpleNamespace(endpoints_resolved=["a"]), [point])
    policy.on_add(reported)
    assert list(policy.make_query_plan()) == [point]
    assert policy.distance(point) != policy.distance(reported)
