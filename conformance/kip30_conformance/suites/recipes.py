"""Guarantees of the recipes on every store while nothing fails: Q01 to Q15."""

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Protocol

import pytest

from kip30 import (
    FencedError,
    GripLostError,
    GroupMembership,
    LifecycleError,
    NotAcquiredError,
    PluginLocator,
    UnsupportedError,
    UsageError,
)
from kip30.aio import AsyncPluginLocator
from kip30.config import Written
from kip30.driver import Capability
from kip30.recipes import Holder, Lock
from kip30.recipes.aio import AsyncFencedGrip, AsyncLock
from kip30.recipes.lock import lock_service
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suite import OpenClient, Suite

A_MOMENT = 0.2
_CLIENTS = 5
_EACH = 10
_WAITERS = 6
_INSIDE = 0.002
_PATIENCE = 20
_IN_A_LOOP = 50
_FEW_THREADS = 10

both = pytest.mark.parametrize("fair", [False, True], ids=["any order", "fair"])


class RecipeTests(Suite):
    """One holder at a time, whose token fences it, and failed attempts leave nothing."""

    @both
    @pytest.mark.timeout(600)
    def test_Q01_exclusion(self, open_client: OpenClient, *, fair: bool) -> None:
        """Of fifty contenders in five clients one at a time holds the lock, each of them once."""
        locks = [Lock(open_client(), "x", fair=fair) for _ in range(_CLIENTS)]
        shared, tokens = threading.Lock(), list[int]()

        def contend(lock: Lock) -> None:
            with lock.acquire() as grip:
                assert shared.acquire(blocking=False), "two hold it at once"
                tokens.append(grip.token)
                throughout(grip.is_valid, seconds=_INSIDE)
                shared.release()

        with ThreadPoolExecutor(_CLIENTS * _EACH) as pool:
            for done in [pool.submit(contend, lock) for lock in locks * _EACH]:
                done.result()
        assert len(tokens) == _CLIENTS * _EACH
        assert all(earlier < later for earlier, later in pairwise(tokens))

    @both
    def test_Q02_token_rises(self, open_client: OpenClient, *, fair: bool) -> None:
        """Each grip has a greater token than all before it, also after its clients are gone."""
        tokens: list[int] = []
        for _ in range(3):
            with open_client() as client, Lock(client, "x", fair=fair, about="me") as lock:
                for _ in range(3):
                    with lock.acquire() as grip:
                        tokens.append(grip.token)
                        assert lock.holder() == Holder("me", grip.token)
                assert lock.holder() is None
        assert tokens == sorted(set(tokens))

    def test_Q03_stale_grip_fenced(self, open_client: OpenClient) -> None:
        """A write of a former holder with its grip as the fence is refused."""
        clients = [open_client() for _ in range(2)]
        first, second = (Lock(client, "x") for client in clients)
        grip, storage = first.acquire(), clients[0].storage()
        if Capability.FENCING not in clients[0].backend.capabilities:
            with pytest.raises(UnsupportedError):
                storage.put("k", "v", fence=grip)
            return
        storage.put("k", "v", fence=grip)
        grip.release()
        with second.acquire() as later:
            assert later.token > grip.token
            with pytest.raises(FencedError):
                storage.update("k", "w", fence=grip)
        assert not grip.is_valid()
        assert grip.lost.is_set()
        with pytest.raises(GripLostError):
            grip.check()

    @both
    def test_Q04_timeout_leaves_nothing(self, open_client: OpenClient, *, fair: bool) -> None:
        """A caller that does not get it in time neither holds it later nor stands before others."""
        clients = [open_client() for _ in range(3)]
        first, second, third = (Lock(client, "x", fair=fair) for client in clients)
        with first.acquire():
            assert second.try_acquire() is None
            with pytest.raises(NotAcquiredError):
                second.acquire(A_MOMENT)
        throughout(lambda: second.holder() is None, seconds=A_MOMENT)
        line = clients[2].group_membership(lock_service("x"))
        eventually(lambda: not line.membership_list(), what="the line is empty")
        with third.acquire(0) as grip:
            grip.check()

    @pytest.mark.parametrize("seconds", [-1.0, float("nan")])
    def test_Q04_no_such_time(self, client: PluginLocator, seconds: float) -> None:
        """A time that is negative or not a number is refused."""
        with Lock(client, "x") as lock, pytest.raises(UsageError):
            lock.acquire(seconds)

    @both
    def test_Q04_closed_lock(self, open_client: OpenClient, *, fair: bool) -> None:
        """Closing a lock releases it, ends its waiting callers, and is final."""
        clients = [open_client() for _ in range(2)]
        first, second = (Lock(client, "x", fair=fair) for client in clients)
        grip = first.acquire()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(second.acquire)
            throughout(lambda: not waiting.done(), seconds=A_MOMENT)
            second.close()
            with pytest.raises(LifecycleError):
                waiting.result()
        first.close()
        assert not grip.is_valid()
        grip.release()
        with pytest.raises(LifecycleError):
            first.acquire(0)
        with Lock(clients[1], "x").acquire(0) as later:
            assert later.token > grip.token

    def test_Q07_fair_order(self, open_client: OpenClient) -> None:
        """A fair lock goes to those that wait in the order in which they came."""
        clients = [open_client() for _ in range(3)]
        line = clients[0].group_membership(lock_service("x"))
        order, first = list[int](), Lock(clients[0], "x", fair=True).acquire()
        eventually(lambda: not line.membership_list(), what="the holder has left the line")

        def wait(number: int) -> None:
            with Lock(clients[number % 3], "x", fair=True).acquire():
                order.append(number)

        with ThreadPoolExecutor(_WAITERS) as pool:
            waiting = list[object]()
            for number in range(_WAITERS):
                waiting.append(pool.submit(wait, number))
                _wait_in_line(line, number + 1)
            first.release()
        assert order == list(range(_WAITERS))

    @both
    def test_Q15_hand_over_without_timeout(
        self, open_client: OpenClient, harness: Harness, *, fair: bool
    ) -> None:
        """Those that wait get the lock one after the other, long before a session could end."""
        clients = [open_client(**harness.steady) for _ in range(3)]
        pass_on([Lock(client, "x", fair=fair).acquire for client in clients], harness.soon)

    @both
    def test_Q15_callers_of_one_client(
        self, open_client: OpenClient, harness: Harness, *, fair: bool
    ) -> None:
        """Those that wait in one client get the lock as soon as those of several clients."""
        client = open_client(**harness.steady)
        locks = [Lock(client, "x", fair=fair) for _ in range(_WAITERS)]
        pass_on([lock.acquire for lock in locks], harness.soon)

    @both
    @pytest.mark.timeout(600)
    def test_Q14_cancelled_await(
        self,
        harness: Harness,
        root: str,
        timeouts: Mapping[str, Written],
        open_client: OpenClient,
        *,
        fair: bool,
    ) -> None:
        """Waiting in an event loop costs no thread; a cancelled task neither waits nor holds."""
        lock, line = Lock(open_client(), "x"), open_client().group_membership(lock_service("x"))
        grip = lock.acquire()

        async def main() -> None:
            async with AsyncPluginLocator(harness.properties(root, **timeouts)) as locator:
                ours = AsyncLock(locator, "x", fair=fair)
                assert await ours.try_acquire() is None
                few = threading.active_count() + _FEW_THREADS
                waiting = [asyncio.create_task(ours.acquire()) for _ in range(_IN_A_LOOP)]
                if fair:
                    await _until(lambda: len(line.membership_list()) >= _IN_A_LOOP)
                await _until(lambda: threading.active_count() <= few)
                last = waiting.pop()
                for one in waiting:
                    one.cancel()
                await asyncio.wait(waiting)
                assert all(one.cancelled() for one in waiting)
                await asyncio.to_thread(grip.release)
                await _held_for_a_moment(await asyncio.wait_for(last, 10 * time_scale()), ours)
                assert await ours.holder() is None

        asyncio.run(main())
        eventually(lambda: not line.membership_list(), what="the line is empty")
        lock.acquire(0).release()


class _Grip(Protocol):
    """A lock or permits that a caller holds."""

    def release(self) -> object:
        """Give it back."""
        ...


def pass_on(acquires: Sequence[Callable[[float], _Grip]], seconds: float) -> None:
    """Check that each of *acquires* returns *seconds* after another one's grip was released.

    They are called on threads of their own while the first one's is held.
    """
    first, *others = acquires
    grip = first(_PATIENCE * time_scale())
    with ThreadPoolExecutor(len(others)) as pool:
        waiting = [pool.submit(acquire, _PATIENCE * time_scale()) for acquire in others]
        throughout(lambda: not any(one.done() for one in waiting), seconds=A_MOMENT)
        grip.release()
        for _ in others:
            done = eventually(
                lambda: next((one for one in waiting if one.done()), None),
                within=seconds,
                what="the next one holds it",
            )
            waiting.remove(done)
            done.result().release()


def _wait_in_line(line: GroupMembership[str], number: int) -> None:
    eventually(lambda: len(line.membership_list()) == number, what="all are in the line")


async def _held_for_a_moment(grip: AsyncFencedGrip, lock: AsyncLock) -> None:
    async with grip:
        grip.check()
        assert await lock.holder() == Holder("", grip.token)
    assert not grip.is_valid()
    assert grip.lost.is_set()


async def _until(probe: Callable[[], bool]) -> None:
    """Call *probe*, on another thread, until it is true."""
    async with asyncio.timeout(20 * time_scale()):
        while not await asyncio.to_thread(probe):  # noqa: ASYNC110  the store sets no event
            await asyncio.sleep(0.01)
