"""Recipes that wait in a line, under trouble that only the core has to deal with."""

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kip30 import (
    ClosedError,
    GripLostError,
    InvalidNameError,
    LifecycleError,
    NotAcquiredError,
    OutcomeUnknownError,
    PluginLocator,
    StoreError,
    UsageError,
)
from kip30.driver import records
from kip30.driver.kit.futures import failed
from kip30.driver.records import Claim, Target
from kip30.recipes import Barrier, Counter, Grip, ReadWriteLock, Semaphore
from kip30.recipes.barrier import barrier_group
from kip30.recipes.counter import counter_key
from kip30.recipes.line import WaitingLine
from kip30.recipes.read_write_lock import read_write_lock_group
from kip30.recipes.semaphore import semaphore_group
from kip30_conformance.driver_faults import wrap
from kip30_conformance.neighbour.base import member
from kip30_conformance.neighbour.embedded import EmbeddedNeighbour
from kip30_conformance.polling import eventually, throughout, time_scale

from .conftest import OpenClient
from .trouble import faults, frozen

Acquire = Callable[[float | None], Grip]


class Kind:
    """One recipe of which one caller at a time holds all."""

    def __init__(self, recipe: str) -> None:
        self._recipe = recipe

    def opened(self, client: PluginLocator) -> tuple[ReadWriteLock | Semaphore, Acquire]:
        if self._recipe == "writer":
            lock = ReadWriteLock(client, "x")
            return lock, lock.write
        semaphore = Semaphore(client, "x", 2)
        return semaphore, lambda seconds: semaphore.acquire(2, seconds)

    def acquire(self, client: PluginLocator) -> Acquire:
        return self.opened(client)[1]

    @property
    def group(self) -> str:
        name = read_write_lock_group if self._recipe == "writer" else semaphore_group
        return name("x")

    def line(self, client: PluginLocator) -> frozenset[str]:
        return client.group_membership(self.group).membership_list()


kinds = pytest.mark.parametrize(
    "kind", [Kind("writer"), Kind("permits")], ids=["writer", "permits"]
)


@kinds
def test_an_interrupted_caller_neither_waits_nor_holds(open_client: OpenClient, kind: Kind) -> None:
    first, second = open_client(), open_client()
    grip, acquire = kind.acquire(first)(10), kind.acquire(second)
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        acquire(None)
    interrupt.join()
    eventually(lambda: len(kind.line(first)) == 1)
    grip.release()
    eventually(lambda: not kind.line(first))


@kinds
@pytest.mark.parametrize("operation", ["membership.claim", "membership.release", "storage.write"])
def test_lost_answers_leave_one_holder_and_nothing_behind(
    open_client: OpenClient, operation: str, kind: Kind
) -> None:
    client, other = open_client(), open_client()
    acquire, theirs = kind.acquire(client), kind.acquire(other)
    faults(client).lose_answers(operation, times=2)
    for _ in range(3):
        with acquire(10) as grip:
            grip.check()
            with pytest.raises(NotAcquiredError):
                theirs(0)
    theirs(10).release()
    eventually(lambda: not kind.line(other))


@kinds
def test_a_caller_waits_on_while_the_store_is_silent(open_client: OpenClient, kind: Kind) -> None:
    client = open_client()
    acquire = kind.acquire(client)
    for operation in ("membership.claim", "storage.read"):
        faults(client).fail(operation, times=None)
    with pytest.raises(NotAcquiredError):
        acquire(0.3)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(acquire, None)
        throughout(lambda: not waiting.done(), seconds=1)
        faults(client).clear()
        waiting.result().release()


@kinds
def test_a_place_that_is_lost_with_the_session_is_taken_again(
    open_client: OpenClient, kind: Kind
) -> None:
    first, second = open_client(), open_client()
    grip, acquire = kind.acquire(first)(10), kind.acquire(second)
    (holder,) = kind.line(first)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(acquire, None)
        (place,) = eventually(lambda: kind.line(first) - {holder})
        faults(second).expire_session()
        eventually(lambda: kind.line(first) - {holder, place})
        assert not waiting.done()
        grip.release()
        waiting.result().release()
    eventually(lambda: not kind.line(first))


@kinds
def test_a_caller_that_waits_learns_of_closing(open_client: OpenClient, kind: Kind) -> None:
    first, second, third = open_client(), open_client(), open_client()
    grip = kind.acquire(first)(10)
    recipe, acquire = kind.opened(third)
    with ThreadPoolExecutor(2) as pool:
        locator_closed = pool.submit(kind.acquire(second), None)
        recipe_closed = pool.submit(acquire, None)
        eventually(lambda: len(kind.line(first)) == 3)
        second.close()
        recipe.close()
        with pytest.raises(ClosedError):
            locator_closed.result()
        with pytest.raises(LifecycleError):
            recipe_closed.result()
    eventually(lambda: len(kind.line(first)) == 1)
    with pytest.raises(LifecycleError):
        acquire(0)
    grip.release()


@kinds
def test_a_grip_ends_with_the_recipe_and_with_the_session(
    open_client: OpenClient, kind: Kind
) -> None:
    client, other = open_client(), open_client()
    grip = kind.acquire(client)(10)
    faults(client).expire_session()
    assert grip.lost.wait(10)
    with pytest.raises(GripLostError):
        grip.check()
    recipe, acquire = kind.opened(other)
    later = acquire(10)
    grip.release()
    later.check()
    recipe.close()
    assert not later.is_valid()
    eventually(lambda: not kind.line(client))


@kinds
def test_a_close_returns_in_time_while_the_store_is_silent(
    open_client: OpenClient, tmp_path: Path, kind: Kind
) -> None:
    seconds = time_scale()
    patient = {"plugin.session.timeout.ms": 60_000}
    client = open_client(**{**patient, "plugin.operation.timeout.ms": round(1000 * seconds)})
    recipe, acquire = kind.opened(client)
    grip = acquire(10)
    with frozen(tmp_path):
        began_at = time.monotonic()
        recipe.close()
        assert time.monotonic() - began_at < 1.5 * seconds
        assert not grip.is_valid()
    eventually(lambda: not kind.line(client))


@kinds
def test_a_caller_joins_by_one_id_while_the_store_does_not_answer(
    client: PluginLocator, kind: Kind
) -> None:
    """Each claim without an answer is searched for, long after it was given up."""
    claimed = list[str]()

    def claim(real: Callable[..., Future[Claim]], group: str, name: str, *rest: Any) -> Any:
        claimed.append(name)
        if len(claimed) <= 3:
            return failed(OutcomeUnknownError("no answer"))
        return real(group, name, *rest)

    wrap(client.backend.membership, "claim", claim)
    kind.acquire(client)(10 * time_scale()).release()
    assert len(claimed) > 3
    assert len(set(claimed)) == 1


@kinds
@pytest.mark.parametrize("closed", ["recipe", "locator"])
def test_a_block_that_closes_its_recipe_has_let_go(
    open_client: OpenClient, kind: Kind, closed: str
) -> None:
    client, other = open_client(**{"plugin.session.timeout.ms": 60_000}), open_client()
    recipe, acquire = kind.opened(client)
    with acquire(10) as grip:
        (recipe if closed == "recipe" else client).close()
        assert not grip.is_valid()
        kind.acquire(other)(10).release()


@kinds
def test_an_unconfirmed_release_raises_outcome_unknown(open_client: OpenClient, kind: Kind) -> None:
    client, other = open_client(), open_client()
    grip = kind.acquire(client)(10)
    faults(client).fail("membership.release", times=None)
    with pytest.raises(OutcomeUnknownError, match="not confirmed"):
        grip.release()
    assert not grip.is_valid()
    faults(client).clear()
    kind.acquire(other)(10).release()


@kinds
def test_a_forked_child_holds_nothing_and_releases_nothing(
    client: PluginLocator, kind: Kind
) -> None:
    acquire = kind.acquire(client)
    grip = acquire(10)

    def in_child() -> bool:
        grip.close()
        with pytest.raises(LifecycleError):
            acquire(0)
        with pytest.raises(LifecycleError):
            Barrier(client, "x", 2).wait(0)
        return not grip.is_valid()

    assert _answer_of_child(in_child)
    grip.check()
    with pytest.raises(NotAcquiredError):
        acquire(0)


@kinds
def test_nothing_is_kept_of_what_was_released(client: PluginLocator, kind: Kind) -> None:
    store = client.__dict__["_store"]
    recipe, acquire = kind.opened(client)
    for _ in range(50):
        acquire(10).release()
    recipe.close()
    eventually(lambda: not store.subscriptions._feeds, within=20)
    eventually(lambda: not store._active_claims, within=20)


@kinds
def test_a_hundred_callers_get_it_one_after_the_other(client: PluginLocator, kind: Kind) -> None:
    acquire, inside, tokens = kind.acquire(client), threading.Lock(), list[int]()

    def use(_: int) -> None:
        with acquire(60) as grip:
            assert inside.acquire(blocking=False)
            tokens.append(grip.token)
            inside.release()

    with ThreadPoolExecutor(100) as pool:
        list(pool.map(use, range(100)))
    assert tokens == sorted(tokens)
    eventually(lambda: not kind.line(client))


def test_a_hundred_parties_pass_together(open_client: OpenClient) -> None:
    # All wait again if the session is lost, and a hundred threads delay renewals on a slow machine.
    timeout = round(2000 * time_scale())
    client = open_client(
        **{"plugin.session.timeout.ms": timeout, "plugin.operation.timeout.ms": timeout}
    )
    barrier = Barrier(client, "x", 100)
    with ThreadPoolExecutor(100) as pool:
        for _ in range(2):
            waiting = [pool.submit(barrier.wait, 60 * time_scale()) for _ in range(100)]
            assert sorted(one.result() for one in waiting) == list(range(100))


def test_a_party_that_loses_its_session_waits_again(open_client: OpenClient) -> None:
    first, second = open_client(), open_client()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(Barrier(second, "x", 2).wait, None)
        (place,) = eventually(lambda: _waiting(first))
        faults(second).expire_session()
        eventually(lambda: _waiting(first) - {place})
        assert not waiting.done()
        assert Barrier(first, "x", 2).wait(10) == 1
        assert waiting.result() == 0
    eventually(lambda: not _waiting(first))


@pytest.mark.parametrize("operation", ["membership.claim", "membership.release", "storage.write"])
def test_lost_answers_at_a_barrier_count_each_party_once(
    open_client: OpenClient, operation: str
) -> None:
    first, second = open_client(), open_client()
    for client in (first, second):
        faults(client).lose_answers(operation, times=2)
    barriers = [Barrier(client, "x", 2) for client in (first, second)]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            waiting = [pool.submit(barrier.wait, 20) for barrier in barriers]
            assert sorted(one.result() for one in waiting) == [0, 1]
    with pytest.raises(NotAcquiredError):
        barriers[0].wait(0)
    eventually(lambda: not _waiting(first))


def test_a_party_that_cannot_be_withdrawn_raises_outcome_unknown(open_client: OpenClient) -> None:
    client = open_client()
    barrier = Barrier(client, "x", 2)
    with pytest.raises(NotAcquiredError):
        barrier.wait(0)
    faults(client).fail("membership.release", times=None)
    with pytest.raises(OutcomeUnknownError, match="count"):
        barrier.wait(0.2)
    faults(client).clear()
    eventually(lambda: not _waiting(client))


def test_a_party_that_gave_up_two_rounds_ago_is_not_said_to_have_lost_its_session(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, others = open_client(), [Barrier(open_client(), "x", 2) for _ in range(2)]
    barrier = Barrier(client, "x", 2)
    withdraw, is_first = barrier._requests._withdraw, [True]

    def late(member_id: str) -> object:
        if is_first:
            is_first.clear()
            with ThreadPoolExecutor(2) as pool:
                for _ in range(3):
                    waiting = [pool.submit(one.wait, 30) for one in others]
                    assert sorted(one.result() for one in waiting) == [0, 1]
        return withdraw(member_id)

    monkeypatch.setattr(barrier._requests, "_withdraw", late)
    with pytest.raises(OutcomeUnknownError, match="left or lost, and rounds have opened"):
        barrier.wait(0.2)


def test_a_record_that_cannot_be_read_may_still_be_in_the_line(
    client: PluginLocator, tmp_path: Path
) -> None:
    """A party that gave up is counted out once its record is gone, not while it is damaged."""
    line = WaitingLine.of(client, "g")
    line.join("readable", b"")
    spot = member("g", "damaged")
    with EmbeddedNeighbour(tmp_path / "state" / "kip30.db", "kip30") as neighbour:
        neighbour.write(spot, neighbour.unreadable_form(neighbour.sound(spot, b"")))
        found = [line.may_have(name) for name in ("readable", "damaged", "none")]
    assert found == [True, True, False]


@kinds
def test_a_caller_that_waits_for_an_unreadable_member_does_not_poll(
    open_client: OpenClient, tmp_path: Path, kind: Kind
) -> None:
    first, second = open_client(), open_client()
    grip, acquire = kind.acquire(first)(10), kind.acquire(second)
    (holder,) = kind.line(first)
    spot, reads = member(kind.group, holder), list[Target]()

    def noted(real: Callable[[Target], Future[object]], target: Target) -> Future[object]:
        answer = real(target)
        answer.add_done_callback(lambda _: reads.append(target))
        return answer

    wrap(second.backend.observe, "snapshot", noted)
    with (
        ThreadPoolExecutor(1) as pool,
        EmbeddedNeighbour(tmp_path / "state" / "kip30.db", "kip30") as neighbour,
    ):
        waiting = pool.submit(acquire, 10)
        # A caller whose first look cannot read a record does not wait.
        eventually(lambda: Target(records.Kind.GROUP, kind.group) in reads)
        neighbour.write(spot, neighbour.unreadable_form(neighbour.read(spot)))
        assert grip.lost.wait(10)
        reads.clear()
        throughout(lambda: not waiting.done(), seconds=0.5)
        assert len(reads) <= 1
        neighbour.remove(spot)
        waiting.result().release()


def test_a_round_does_not_count_a_party_that_has_given_up_meanwhile(
    open_client: OpenClient,
) -> None:
    first, second = open_client(), open_client()
    barriers = [Barrier(client, "x", 2) for client in (first, second)]
    for barrier in barriers:
        with pytest.raises(NotAcquiredError):
            barrier.wait(0)
    with ThreadPoolExecutor(2) as pool:
        giving_up = pool.submit(barriers[0].wait, 0.5)
        eventually(lambda: _waiting(first))
        faults(second).delay("storage.write", 1.0)  # it has seen both by then
        opening = pool.submit(barriers[1].wait, 2)
        for one in (giving_up, opening):
            with pytest.raises(NotAcquiredError):
                one.result()
    assert faults(second).counted()


def test_a_round_opens_once_all_that_passed_before_have_noticed(open_client: OpenClient) -> None:
    first, second = open_client(), open_client()
    with ThreadPoolExecutor(4) as pool:
        slow = pool.submit(Barrier(first, "x", 2).wait, None)
        eventually(lambda: _waiting(second))
        # So that its first look is over: a read that has begun is not struck.
        throughout(lambda: bool(_waiting(second)), seconds=0.3 * time_scale())
        faults(first).fail("storage.read", times=None)
        barrier = Barrier(second, "x", 2)
        assert barrier.wait(10) == 1
        following = [pool.submit(barrier.wait, None) for _ in range(2)]
        throughout(lambda: not any(one.done() for one in following), seconds=0.5)
        faults(first).clear()
        assert slow.result() == 0
        assert sorted(one.result() for one in following) == [0, 1]


def test_a_failed_try_is_not_in_the_way_of_the_next_one(client: PluginLocator) -> None:
    permits = Semaphore(client, "x", 3)
    with permits.acquire(2):
        for _ in range(30):
            assert permits.try_acquire(2) is None
            grip = permits.try_acquire(1)
            assert grip is not None
            grip.release()


def test_permits_of_an_older_kip30_count(client: PluginLocator) -> None:
    """It writes how many it wants, and not of how many."""
    WaitingLine.of(client, semaphore_group("x")).join("older", b"2")
    permits = Semaphore(client, "x", 3)
    assert permits.try_acquire(2) is None
    grip = permits.try_acquire(1)
    assert grip is not None
    grip.release()


@pytest.mark.parametrize("data", [b"", b"-1", b"1/", b"/3", b"1/3/3", b"1/x", b"1.5", b"1" * 9999])
def test_a_member_without_a_number_of_permits_holds_all(client: PluginLocator, data: bytes) -> None:
    WaitingLine.of(client, semaphore_group("x")).join("other", data)
    assert Semaphore(client, "x", 3).try_acquire() is None


def test_a_number_of_permits_that_was_refused_is_compared_again(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    permits, key = Semaphore(client, "x", 3), f"{semaphore_group('x')}/permits"
    permits.acquire().release()
    client.storage().update(key, "1")
    grip = Semaphore(other, "x", 1).acquire(timeout_seconds=10)
    for in_line in (grip, None):
        with pytest.raises(UsageError, match="same number"):
            permits.acquire(timeout_seconds=10)
        if in_line is not None:
            in_line.release()


@pytest.mark.parametrize("parties", [0, 1001, True, 1.5])
def test_a_barrier_needs_a_number_of_parties(client: PluginLocator, parties: int) -> None:
    with pytest.raises(UsageError):
        Barrier(client, "x", parties)


@pytest.mark.parametrize(
    "text", ["{}", "[]", '"x"', '{"parties":1e999,"round":0,"members":[]}', '{"parties":2}']
)
def test_a_record_that_is_none_of_a_barrier_is_refused(client: PluginLocator, text: str) -> None:
    client.storage().put(f"{barrier_group('x')}/round", text)
    with pytest.raises(StoreError, match="not the record of a barrier"):
        Barrier(client, "x", 2).wait(0)


def test_lost_answers_of_a_counter_add_once(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    counter, theirs = Counter(client, "x"), Counter(other, "x")
    for number in range(0, 15, 3):
        assert counter.add() == number + 1
        faults(client).lose_answers("storage.write", times=1)
        assert counter.add() == number + 2
        assert theirs.add() == number + 3
    assert counter.value() == 15


def test_a_counter_finds_out_that_it_was_deleted(client: PluginLocator) -> None:
    counter = Counter(client, "x")
    counter.add(5)
    client.storage().delete(counter_key("x"))
    assert counter.add(2) == 2
    for text in ('"text"', "true", "1.5"):
        client.storage().update(counter_key("x"), text)
        with pytest.raises(StoreError, match="not a number"):
            counter.value()
        with pytest.raises(StoreError, match="not a number"):
            counter.add()


def test_a_counter_is_refused_in_a_child_forked_while_a_thread_changed_it(
    client: PluginLocator,
) -> None:
    counter = Counter(client, "x")

    def in_child() -> bool:
        with pytest.raises(LifecycleError):
            counter.add()
        return True

    with counter._changing:
        assert _answer_of_child(in_child)


@pytest.mark.parametrize("by", [1.0, "1", True, None])
def test_a_counter_adds_whole_numbers(client: PluginLocator, by: int) -> None:
    with pytest.raises(UsageError):
        Counter(client, "x").add(by)


@pytest.mark.parametrize("name", ["", "n" * 300])
def test_recipes_need_a_name(client: PluginLocator, name: str) -> None:
    for make in (
        lambda: ReadWriteLock(client, name),
        lambda: Semaphore(client, name, 1),
        lambda: Barrier(client, name, 1),
        lambda: Counter(client, name),
    ):
        with pytest.raises(InvalidNameError):
            make()


def _waiting(client: PluginLocator) -> frozenset[str]:
    return client.group_membership(barrier_group("x")).membership_list()


def _answer_of_child(function: Callable[[], bool]) -> bool:
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that this process has threads
        child = os.fork()
    if not child:
        try:
            os.write(write, b"1" if function() else b"0")
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    answer = os.read(read, 1)
    os.close(read)
    return answer == b"1"
