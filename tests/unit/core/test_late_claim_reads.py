"""Searches for members that were granted without an answer share their reads of the group."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest

from kip30 import OutcomeUnknownError, PluginLocator, UnavailableError
from kip30.driver.clock import ManualClock
from kip30.driver.records import Kind, Target
from kip30.runtime.open_store import OpenStore
from kip30_conformance.driver_faults import DriverFault, Effect, wrap
from kip30_conformance.polling import eventually

from .conftest import OpenClient
from .trouble import faults

GROUP = "g"
CROWD = 20
LONG = 60.0


class Counter:
    """Counts the calls of a method that ask for one group."""

    def __init__(self, owner: object, name: str) -> None:
        self.count = 0
        wrap(owner, name, self._call)

    def _call(self, real: Callable[..., Any], wanted: Target | str, *more: Any) -> Any:
        if wanted in {GROUP, Target(Kind.GROUP, GROUP)}:
            self.count += 1
        return real(wanted, *more)


def store_of(client: PluginLocator) -> OpenStore:
    store = client._store
    assert store is not None
    return store


def lose_claims(client: PluginLocator) -> None:
    """Lose all claims of *client*, as a store does that is too slow for it."""
    effect = Effect.CUT_OFF
    faults(client).add(
        DriverFault(operation="membership.claim", effect=effect, times=None, seconds=LONG)
    )


def join_in_vain(client: PluginLocator, members: int) -> None:
    group = client.group_membership(GROUP)
    with ThreadPoolExecutor(members) as threads:
        joins = [threads.submit(group.join, f"m{number}", "") for number in range(members)]
        wait(joins)
    for join in joins:
        with pytest.raises(OutcomeUnknownError):
            join.result()


@pytest.mark.medium
def test_many_searches_cost_hardly_more_reads_than_one(open_client: OpenClient) -> None:
    client = open_client(**{"plugin.operation.timeout.ms": 300})
    searches = Counter(store_of(client).late_claim_reads, "nonces")
    lose_claims(client)
    join_in_vain(client, CROWD)
    reads = Counter(client.backend.observe, "snapshot")
    begun = searches.count
    eventually(lambda: searches.count >= begun + 3 * CROWD, within=30)
    assert reads.count <= CROWD / 2


@pytest.mark.medium
def test_a_store_that_fails_is_not_read_more_often(open_client: OpenClient) -> None:
    client = open_client(**{"plugin.operation.timeout.ms": 300})
    searches = Counter(store_of(client).late_claim_reads, "nonces")
    faults(client).fail("observe.snapshot", times=None)
    reads = Counter(client.backend.observe, "snapshot")
    lose_claims(client)
    join_in_vain(client, CROWD)
    eventually(lambda: searches.count >= 3 * CROWD, within=30)
    assert reads.count <= CROWD / 2


def test_a_read_from_before_a_release_makes_no_claim(open_client: OpenClient) -> None:
    """The look-up is a claim with the same nonce: it would join once more."""
    client, other = open_client(), open_client()
    group = client.group_membership(GROUP)
    faults(client).lose_answers("membership.claim")
    group.join("m", "mine")
    shared = store_of(client).late_claim_reads.nonces(GROUP, LONG)
    assert [*shared.result()] == ["m"]
    claims = Counter(client.backend.membership, "claim")
    searches = Counter(store_of(client).late_claim_reads, "nonces")
    group.leave("m")
    eventually(lambda: searches.count)
    eventually(lambda: not other.group_membership(GROUP).membership_list())
    assert claims.count == 0


def test_a_caller_that_gives_up_does_not_end_the_read_of_others(client: PluginLocator) -> None:
    searches = store_of(client).late_claim_reads
    faults(client).delay("observe.snapshot", 0.3)
    first, second = searches.nonces(GROUP, LONG), searches.nonces(GROUP, LONG)
    assert first.cancel()
    assert second.result(10) == {}


def test_reads_that_no_search_can_use_any_longer_are_dropped(client: PluginLocator) -> None:
    searches = store_of(client).late_claim_reads
    for number in range(CROWD):
        searches.nonces(f"g{number}", 0.0).result()
    assert [*searches._reads] == [f"g{CROWD - 1}"]


def test_a_failure_keeps_the_next_read_back_for_a_second(open_client: OpenClient) -> None:
    clock = ManualClock()
    client = open_client(clock)
    searches = store_of(client).late_claim_reads
    faults(client).fail("observe.snapshot")
    errors = [searches.nonces(GROUP, LONG).exception(10) for _ in range(3)]
    assert all(isinstance(error, UnavailableError) for error in errors)
    assert len({id(error) for error in errors}) == 3, "one that is raised often keeps growing"
    clock.advance(1.1)
    assert searches.nonces(GROUP, LONG).result(10) == {}


def test_a_read_under_way_serves_searches_whatever_its_age(open_client: OpenClient) -> None:
    clock = ManualClock()
    client = open_client(clock)
    searches = store_of(client).late_claim_reads
    faults(client).delay("observe.snapshot", 0.5)
    reads = Counter(client.backend.observe, "snapshot")
    first = searches.nonces(GROUP, 1.0)
    clock.advance(1.5)
    searches.nonces("other", 1.0)  # which drops the reads that no search needs any longer
    second = searches.nonces(GROUP, 1.0)
    assert [first.result(10), second.result(10)] == [{}, {}]
    assert reads.count == 1


def test_a_lost_update_is_looked_up_without_the_other_members(open_client: OpenClient) -> None:
    client = open_client()
    group = client.group_membership(GROUP)
    group.join("m", "1")
    group.join("other", "")
    reads = Counter(client.backend.observe, "snapshot")
    faults(client).lose_answers("membership.replace")
    group.update("m", "2")
    assert reads.count == 0
    assert group.membership()["m"] == "2"
