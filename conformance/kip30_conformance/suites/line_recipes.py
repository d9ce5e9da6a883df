"""Recipes whose callers wait in a line, and the counter, while nothing fails."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import chain, count
from typing import TypeVar

import pytest

from kip30 import (
    GroupMembership,
    LifecycleError,
    NotAcquiredError,
    PluginLocator,
    StoreError,
    UsageError,
)
from kip30.driver import Capability
from kip30.recipes import Barrier, Counter, Grip, Lock, ReadWriteLock, Semaphore
from kip30.recipes.barrier import barrier_group
from kip30.recipes.lock import lock_service
from kip30.recipes.read_write_lock import read_write_lock_group
from kip30.recipes.semaphore import semaphore_group
from kip30_conformance.harness import Harness
from kip30_conformance.neighbour.base import Neighbour, member
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suite import OpenClient, Suite, needing, supported
from kip30_conformance.suites.recipes import pass_on

A = TypeVar("A")
T = TypeVar("T")

A_MOMENT = 0.2
_CLIENTS = 4
_EACH = 8
_INSIDE = 0.002
_PERMITS = 5
_PARTIES = 4
_ROUNDS = 5
_PATIENCE = 60
_ADDS = 200
_BY = 10


class LineRecipeTests(Suite):
    """Readers share, writers do not starve, permits add up, barriers open for all at once."""

    @pytest.fixture
    def neighbour(self, harness: Harness, root: str, client: PluginLocator) -> Iterator[Neighbour]:
        """Yield another program; a client is started first, so that there is a store."""
        del client
        with supported(harness.neighbour, root) as neighbour:
            yield neighbour

    def test_Q07_unreadable_caller(self, open_client: OpenClient, neighbour: Neighbour) -> None:
        """A caller of a fair lock that cannot be read is not passed."""
        client = open_client()
        lock = Lock(client, "x", fair=True)
        _expect_refused(_line(client, lock_service("x")), neighbour, lock.acquire)
        lock.acquire(_PATIENCE * time_scale()).release()

    def test_Q08_readers_share(self, open_client: OpenClient) -> None:
        """Readers hold a lock together, a writer alone, and each waits for the other kind."""
        first, second, third = (ReadWriteLock(open_client(), "x") for _ in range(3))
        with first.read(), second.read() as read:
            with pytest.raises(NotAcquiredError):
                third.write(A_MOMENT)
            with third.read(_PATIENCE * time_scale()):
                read.check()
        with third.write(_PATIENCE * time_scale()) as write:
            assert write.token > read.token
            for one in (first, second):
                with pytest.raises(NotAcquiredError):
                    one.read(0)
                with pytest.raises(NotAcquiredError):
                    one.write(0)
        assert not write.is_valid()
        assert write.lost.is_set()
        first.read(_PATIENCE * time_scale()).release()

    @pytest.mark.timeout(600)
    def test_Q08_readers_and_writers(self, open_client: OpenClient) -> None:
        """Of contenders in four clients no writer ever holds it with another one."""
        locks = [ReadWriteLock(open_client(), "x") for _ in range(_CLIENTS)]
        inside = _Occupancy(most=_CLIENTS * _EACH)

        def contend(number: int) -> None:
            lock, is_writer = locks[number % _CLIENTS], number % 3 == 0
            with (
                lock.write(_PATIENCE * time_scale())
                if is_writer
                else lock.read(_PATIENCE * time_scale())
            ):
                inside.enter(_CLIENTS * _EACH if is_writer else 1)

        _all_done(contend, range(_CLIENTS * _EACH))
        line = _line(open_client(), read_write_lock_group("x"))
        eventually(lambda: not line.membership_list(), what="the line is empty")

    def test_Q08_callers_of_one_client(self, open_client: OpenClient, harness: Harness) -> None:
        """Readers and writers that wait in one client follow each other just as soon."""
        client = open_client(**harness.steady)
        locks = [ReadWriteLock(client, "x") for _ in range(_EACH)]
        pass_on([[one.write, one.read][at % 2] for at, one in enumerate(locks)], harness.soon)

    def test_Q09_writer_not_starved(self, open_client: OpenClient) -> None:
        """A reader that comes after a writer waits for it, though it could read with others."""
        first, second, third = (ReadWriteLock(open_client(), "x") for _ in range(3))
        line = _line(open_client(), read_write_lock_group("x"))
        read = first.read(_PATIENCE * time_scale())
        with ThreadPoolExecutor(2) as pool:
            write = pool.submit(second.write, _PATIENCE * time_scale())
            _wait_in_line(line, 2)
            with pytest.raises(NotAcquiredError):
                third.read(0)
            later = pool.submit(third.read, _PATIENCE * time_scale())
            _wait_in_line(line, 3)
            throughout(lambda: not write.done() and not later.done(), seconds=A_MOMENT)
            read.release()
            held = write.result()
            throughout(lambda: not later.done(), seconds=A_MOMENT)
            held.release()
            later.result().release()

    def test_Q08_unreadable_member(self, open_client: OpenClient, neighbour: Neighbour) -> None:
        """A member that cannot be read counts as a writer, known to be first or not."""
        first, second = (ReadWriteLock(open_client(), "x") for _ in range(2))
        line = _line(open_client(), read_write_lock_group("x"))
        for acquire in (second.read, second.write):
            _expect_refused(line, neighbour, acquire)
        _expect_to_wait(line, neighbour, [first.write], second.read)
        _expect_to_wait(line, neighbour, [first.read, first.read], second.write)

    @pytest.mark.timeout(600)
    def test_Q10_permits(self, open_client: OpenClient) -> None:
        """Of five permits no more than five are held at once, however many are requested."""
        semaphores = [Semaphore(open_client(), "x", _PERMITS) for _ in range(_CLIENTS)]
        inside = _Occupancy(most=_PERMITS)

        def contend(number: int) -> None:
            wanted = 1 + number % 3
            with semaphores[number % _CLIENTS].acquire(wanted, _PATIENCE * time_scale()):
                inside.enter(wanted)

        _all_done(contend, range(_CLIENTS * _EACH))
        line = _line(open_client(), semaphore_group("x"))
        eventually(lambda: not line.membership_list(), what="the line is empty")

    def test_Q10_all_permits(self, open_client: OpenClient) -> None:
        """All permits can be held, by one caller or several, and then no more."""
        first, second = (Semaphore(open_client(), "x", 3) for _ in range(2))
        with first.acquire(3, _PATIENCE * time_scale()):
            assert second.try_acquire() is None
        with (
            first.acquire(2, _PATIENCE * time_scale()) as two,
            second.acquire(1, _PATIENCE * time_scale()) as one,
        ):
            assert first.try_acquire() is None
            two.release()
            assert first.try_acquire(3) is None
            first.acquire(2, _PATIENCE * time_scale()).release()
            one.check()
        second.acquire(3, _PATIENCE * time_scale()).release()

    @pytest.mark.parametrize("released", [0, 1], ids=["earlier holder", "later holder"])
    def test_Q10_any_release_counts(self, open_client: OpenClient, released: int) -> None:
        """A caller that waits for one permit gets it, whichever holder releases its own."""
        semaphores = [Semaphore(open_client(), "x", 2) for _ in range(3)]
        grips = [one.acquire(1, _PATIENCE * time_scale()) for one in semaphores[:2]]
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(semaphores[2].acquire, 1, _PATIENCE * time_scale())
            _wait_in_line(_line(open_client(), semaphore_group("x")), 3)
            throughout(lambda: not waiting.done(), seconds=A_MOMENT)
            grips.pop(released).release()
            waiting.result().release()
        grips[0].release()

    def test_Q10_callers_of_one_client(self, open_client: OpenClient, harness: Harness) -> None:
        """Those that wait in one client get the permit long before a session could end."""
        client = open_client(**harness.steady)
        semaphores = [Semaphore(client, "x", 1) for _ in range(_EACH)]
        pass_on([partial(one.acquire, 1) for one in semaphores], harness.soon)

    def test_Q10_many_are_not_passed(self, open_client: OpenClient) -> None:
        """A caller that waits for many permits is not passed by one that wants few."""
        first, second, third = (Semaphore(open_client(), "x", 3) for _ in range(3))
        line = _line(open_client(), semaphore_group("x"))
        grip = first.acquire(1, _PATIENCE * time_scale())
        with ThreadPoolExecutor(1) as pool:
            many = pool.submit(second.acquire, 3, _PATIENCE * time_scale())
            _wait_in_line(line, 2)
            assert third.try_acquire() is None
            assert not many.done()
            grip.release()
            held = many.result()
            assert held.token > grip.token
            held.release()
        third.acquire(1, _PATIENCE * time_scale()).release()

    def test_Q10_unreadable_member(self, open_client: OpenClient, neighbour: Neighbour) -> None:
        """A member that cannot be read counts as holding all permits."""
        first, second = (Semaphore(open_client(), "x", 2) for _ in range(2))
        line = _line(open_client(), semaphore_group("x"))
        _expect_refused(line, neighbour, partial(second.acquire, 1))
        one = partial(first.acquire, 1)
        _expect_to_wait(line, neighbour, [one, one], partial(second.acquire, 2))

    def test_Q11_permits_disagree(self, open_client: OpenClient) -> None:
        """A client that names another number of permits is refused, and holds nothing."""
        first, second = open_client(), open_client()
        grip = Semaphore(first, "x", 2).acquire(1, _PATIENCE * time_scale())
        for other in (1, 3):
            with pytest.raises(UsageError, match="same number"):
                Semaphore(second, "x", other).acquire()
        assert len(_line(first, semaphore_group("x")).membership_list()) == 1
        Semaphore(second, "x", 2).acquire(1, _PATIENCE * time_scale()).release()
        grip.check()

    @pytest.mark.parametrize("is_old", [True, False], ids=["old client", "new client"])
    def test_Q11_permits_changed(self, open_client: OpenClient, *, is_old: bool) -> None:
        """A client that goes on with a former number is refused, and refuses none of its own."""
        first, second = open_client(), open_client()
        line, storage = _line(first, semaphore_group("x")), second.storage()
        old = Semaphore(first, "x", 3)
        old.acquire(3, _PATIENCE * time_scale()).release()
        storage.delete(f"{semaphore_group('x')}/permits")
        new = Semaphore(second, "x", 1)
        holds, other = (new, old) if is_old else (old, new)
        grip = holds.acquire(1, _PATIENCE * time_scale())
        for seconds in (0, _PATIENCE * time_scale()):
            with pytest.raises(UsageError, match="same number"):
                other.acquire(1, seconds)
        eventually(lambda: len(line.membership_list()) == 1, what="it has left the line")
        grip.check()
        grip.release()

    @pytest.mark.parametrize("permits", [0, -1, 3, True, 1.0])
    def test_Q11_no_such_permits(self, client: PluginLocator, permits: int) -> None:
        """Only a whole number of permits, from 1 to all of them, can be acquired."""
        with Semaphore(client, "x", 2) as semaphore, pytest.raises(UsageError):
            semaphore.acquire(permits)

    @pytest.mark.timeout(600)
    def test_Q12_barrier_opens_for_all(self, open_client: OpenClient) -> None:
        """No caller passes before all have come, and each round counts each place once."""
        clients = [open_client() for _ in range(_PARTIES)]
        with needing(clients[0], Capability.COMPARE_AND_SET):
            barriers = [Barrier(client, "x", _PARTIES) for client in clients]
            arrived = [count() for _ in range(_ROUNDS)]

            def pass_all(barrier: Barrier) -> list[int]:
                places = list[int]()
                for round_ in arrived:
                    next(round_)
                    places.append(barrier.wait(_PATIENCE * time_scale()))
                    assert next(round_) >= _PARTIES
                return places

            rounds = zip(*_all_done(pass_all, barriers), strict=True)
            assert all(sorted(places) == list(range(_PARTIES)) for places in rounds)
        line = _line(clients[0], barrier_group("x"))
        eventually(lambda: not line.membership_list(), what="nobody waits")

    def test_Q12_barrier_given_up(self, open_client: OpenClient) -> None:
        """A party that gave up is not counted; those that wait pass once another has come."""
        clients = [open_client() for _ in range(3)]
        with needing(clients[0], Capability.COMPARE_AND_SET):
            first, second, third = (Barrier(client, "x", 2) for client in clients)
            for seconds in (0, A_MOMENT):
                with pytest.raises(NotAcquiredError):
                    first.wait(seconds)
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(second.wait, _PATIENCE * time_scale())
                _wait_in_line(_line(clients[0], barrier_group("x")), 1)
                throughout(lambda: not waiting.done(), seconds=A_MOMENT)
                assert third.wait(_PATIENCE * time_scale()) == 1
                assert waiting.result() == 0

    def test_Q12_barrier_closed(self, open_client: OpenClient) -> None:
        """Closing a barrier ends those that wait through it, and those are not counted later."""
        clients = [open_client() for _ in range(2)]
        with needing(clients[0], Capability.COMPARE_AND_SET):
            first, second = (Barrier(client, "x", 2) for client in clients)
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(first.wait, _PATIENCE * time_scale())
                line = _line(clients[1], barrier_group("x"))
                _wait_in_line(line, 1)
                first.close()
                with pytest.raises(LifecycleError):
                    waiting.result()
            eventually(lambda: not line.membership_list(), what="nobody waits")
            with pytest.raises(NotAcquiredError):
                second.wait(A_MOMENT)

    def test_Q12_unreadable_party(self, open_client: OpenClient, neighbour: Neighbour) -> None:
        """A barrier whose parties cannot all be read opens for none that has not counted them."""
        client = open_client()
        with needing(client, Capability.COMPARE_AND_SET):
            barrier, line = Barrier(client, "x", 1), _line(client, barrier_group("x"))
            _expect_refused(line, neighbour, barrier.wait)

    def test_Q12_parties_disagree(self, open_client: OpenClient) -> None:
        """A client that names another number of parties is refused."""
        first, second = open_client(), open_client()
        with needing(first, Capability.COMPARE_AND_SET):
            assert Barrier(first, "x", 1).wait(_PATIENCE * time_scale()) == 0
            with pytest.raises(UsageError, match="same number"):
                Barrier(second, "x", 2).wait()

    @pytest.mark.timeout(900)
    def test_Q13_counter_10_000(self, open_client: OpenClient, harness: Harness) -> None:
        """Of a thousand additions by five clients none is lost, and none is done twice."""
        clients = [open_client(**harness.contended) for _ in range(5)]
        with needing(clients[0], Capability.COMPARE_AND_SET):
            counters = [Counter(client, "x") for client in clients]

            def add(counter: Counter) -> list[int]:
                return [counter.add(_BY) for _ in range(_ADDS)]

            seen = _all_done(add, counters)
            assert all(one == sorted(one) for one in seen)
            assert sorted(chain.from_iterable(seen)) == list(range(_BY, 10_000 + _BY, _BY))
            assert [counter.value() for counter in counters] == [10_000] * 5

    def test_Q13_compare_and_set(self, open_client: OpenClient) -> None:
        """A number is replaced only if it is the expected one, also if it was seen long ago."""
        clients = [open_client() for _ in range(2)]
        with needing(clients[0], Capability.COMPARE_AND_SET):
            first, second = (Counter(client, "x") for client in clients)
            assert first.value() == 0
            assert not first.compare_and_set(1, 5)
            assert first.compare_and_set(0, 5)
            assert second.add(-7) == -2
            assert not first.compare_and_set(5, 6)
            assert first.compare_and_set(-2, 2**70)
            assert second.add() == 2**70 + 1
            assert first.compare_and_set(2**70 + 1, 3)
            assert first.value() == second.value() == 3


class _Occupancy:
    """Weighs those that are inside at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._weight = 0
        self._lock = threading.Lock()

    def enter(self, weight: int) -> None:
        """Stay inside with *weight* for a moment, with no more than the most in total."""
        with self._entered(weight):
            throughout(lambda: self._weight <= self._most, seconds=_INSIDE)

    @contextmanager
    def _entered(self, weight: int) -> Generator[None]:
        with self._lock:
            self._weight += weight
            assert self._weight <= self._most, f"{self._weight} are held at once"
        try:
            yield
        finally:
            with self._lock:
                self._weight -= weight


def _all_done(function: Callable[[A], T], arguments: Iterable[A]) -> list[T]:
    """Call *function* with each of *arguments* on a thread of its own, and return the answers."""
    given = list(arguments)
    with ThreadPoolExecutor(len(given)) as pool:
        return [done.result() for done in [pool.submit(function, one) for one in given]]


def _line(client: PluginLocator, group: str) -> GroupMembership[str]:
    return client.group_membership(group)


def _wait_in_line(line: GroupMembership[str], number: int) -> None:
    eventually(lambda: len(line.membership_list()) == number, what="all are in the line")


def _expect_refused(
    line: GroupMembership[str], neighbour: Neighbour, acquire: Callable[[float], object]
) -> None:
    """Require *acquire* to be refused while an unknown member of *line* cannot be read."""
    spot = member(line.group, "unknown")
    neighbour.write(spot, neighbour.unreadable_form(neighbour.sound(spot, b"")))
    for seconds in (0, _PATIENCE * time_scale()):
        with pytest.raises(StoreError, match="'unknown'"):
            acquire(seconds)
    neighbour.remove(spot)
    eventually(lambda: not line.membership().unreadable, what="nothing is left of it")
    eventually(lambda: not line.membership_list(), what="the line is empty")


def _expect_to_wait(
    line: GroupMembership[str],
    neighbour: Neighbour,
    holds: Sequence[Callable[[float], Grip]],
    acquire: Callable[[float], Grip],
) -> None:
    """Require *acquire* to wait on for the first of *holds* once its member cannot be read."""
    seconds = _PATIENCE * time_scale()
    first = holds[0](seconds)
    (holder,) = line.membership_list()
    others = [hold(seconds) for hold in holds[1:]]
    spot = member(line.group, holder)
    # The vendor's client may be connected to a server that lags behind.
    sound = eventually(lambda: neighbour.read(spot), what="the neighbour finds the holder")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(acquire, seconds)
        _wait_in_line(line, len(holds) + 1)
        throughout(lambda: not waiting.done(), seconds=A_MOMENT)
        neighbour.write(spot, neighbour.unreadable_form(sound))
        eventually(lambda: holder in line.membership().unreadable, what="it cannot be read")
        for grip in others:
            grip.release()
        throughout(lambda: not waiting.done(), seconds=A_MOMENT)
        neighbour.remove(spot)
        waiting.result().release()
    first.release()
    eventually(lambda: not line.membership_list(), what="the line is empty")
