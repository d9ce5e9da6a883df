"""Recipes that wait in a line, in an event loop whose tasks are cancelled at any moment."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kip30 import NotAcquiredError, StoreError
from kip30.aio import AsyncPluginLocator, leased
from kip30.recipes import ReadWriteLock, Semaphore, aio
from kip30.recipes.aio import (
    AsyncBarrier,
    AsyncCounter,
    AsyncGrip,
    AsyncLock,
    AsyncReadWriteLock,
    AsyncSemaphore,
)
from kip30.recipes.barrier import barrier_group
from kip30.recipes.lock import lock_service
from kip30.recipes.read_write_lock import read_write_lock_group
from kip30.recipes.semaphore import semaphore_group
from kip30_conformance.neighbour.base import member
from kip30_conformance.neighbour.embedded import EmbeddedNeighbour
from kip30_conformance.polling import eventually, throughout

from .conftest import OpenClient


def _opened(folder: Path) -> AsyncPluginLocator:
    return AsyncPluginLocator(
        {"plugin.backend": "embedded", "plugin.embedded.directory": folder / "state"}
    )


@pytest.mark.parametrize("recipe", ["read", "write", "permit"])
def test_a_task_that_is_cancelled_at_any_moment_leaves_nothing(
    open_client: OpenClient, tmp_path: Path, recipe: str
) -> None:
    group = semaphore_group("x") if recipe == "permit" else read_write_lock_group("x")
    line = open_client().group_membership(group)

    async def main() -> None:
        async with _opened(tmp_path) as locator:
            lock, semaphore = AsyncReadWriteLock(locator, "x"), AsyncSemaphore(locator, "x", 1)
            acquires: dict[str, Callable[..., Coroutine[Any, Any, AsyncGrip[Any]]]] = {
                "read": lock.read,
                "write": lock.write,
                "permit": semaphore.acquire,
            }
            acquire = acquires[recipe]
            for steps in range(40):
                task = asyncio.create_task(acquire())
                await asyncio.sleep(0.0005 * steps)
                task.cancel()
                try:
                    grip = await task
                except asyncio.CancelledError:
                    continue
                await grip.release()
            await asyncio.to_thread(eventually, lambda: not line.membership_list())
            async with await acquire(timeout_seconds=10) as grip:
                grip.check()
            assert grip.lost.is_set()

    asyncio.run(main())


def test_a_release_sets_lost_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the event arrives that says so."""
    monkeypatch.setattr(leased, "_end", lambda _: None)

    async def main() -> None:
        async with _opened(tmp_path) as locator:
            for lock in (AsyncLock(locator, "l"), AsyncSemaphore(locator, "s", 1)):
                async with await lock.acquire() as grip:
                    assert not grip.lost.is_set()
                assert grip.lost.is_set()

    asyncio.run(main())


@pytest.mark.parametrize("closed", ["recipe", "locator"])
def test_a_close_sets_lost_before_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    """However late the event arrives that says so."""
    monkeypatch.setattr(leased, "_end", lambda _: None)

    async def main() -> None:
        async with _opened(tmp_path) as locator:
            lock, fair = AsyncLock(locator, "l"), AsyncLock(locator, "f", fair=True)
            permits, pages = AsyncSemaphore(locator, "s", 1), AsyncReadWriteLock(locator, "r")
            grips = [await one.acquire() for one in (lock, fair, permits)]
            grips.append(await pages.read())
            if closed == "recipe":
                for one in (lock, fair, permits, pages):
                    await one.close()
                assert [grip.lost.is_set() for grip in grips] == [True] * 4
        assert [grip.lost.is_set() for grip in grips] == [True] * 4

    asyncio.run(main())


def test_a_place_behind_a_member_that_cannot_be_read_is_refused(
    open_client: OpenClient, tmp_path: Path
) -> None:
    open_client().group_membership("g").join("m", "")  # so that there is a store
    groups = [lock_service("x"), read_write_lock_group("x"), semaphore_group("x")]
    with EmbeddedNeighbour(tmp_path / "state" / "kip30.db", "kip30") as neighbour:
        for group in (*groups, barrier_group("x")):
            spot = member(group, "unknown")
            neighbour.write(spot, neighbour.unreadable_form(neighbour.sound(spot, b"")))

    async def main() -> None:
        async with _opened(tmp_path) as locator:
            lock, permits = AsyncReadWriteLock(locator, "x"), AsyncSemaphore(locator, "x", 1)
            fair, barrier = AsyncLock(locator, "x", fair=True), AsyncBarrier(locator, "x", 1)
            for acquire in (fair.acquire, lock.read, lock.write, permits.acquire, barrier.wait):
                with pytest.raises(StoreError, match="'unknown'"):
                    await acquire(timeout_seconds=5)

    asyncio.run(main())


@pytest.mark.parametrize("closed", ["recipe", "locator"])
@pytest.mark.parametrize("recipe", ["write", "permit"])
def test_a_close_releases_a_grip_when_its_block_is_left(
    open_client: OpenClient, tmp_path: Path, recipe: str, closed: str
) -> None:
    other = open_client()
    is_permit = recipe == "permit"
    theirs = Semaphore(other, "x", 1).acquire if is_permit else ReadWriteLock(other, "x").write

    async def main() -> None:
        held, may_end = asyncio.Event(), asyncio.Event()
        async with _opened(tmp_path) as locator:
            lock, semaphore = AsyncReadWriteLock(locator, "x"), AsyncSemaphore(locator, "x", 1)
            acquire = semaphore.acquire if is_permit else lock.write

            async def work() -> None:
                async with await acquire() as grip:
                    held.set()
                    await may_end.wait()
                    assert not grip.is_valid()

            task = asyncio.create_task(work())
            await held.wait()
            end = (semaphore if is_permit else lock) if closed == "recipe" else locator
            closing = asyncio.create_task(end.close())
            with pytest.raises(NotAcquiredError):
                await asyncio.to_thread(theirs, timeout_seconds=0.3)
            may_end.set()
            await task
            await closing
            grip = await asyncio.to_thread(theirs, timeout_seconds=10)
            grip.release()

    asyncio.run(main())


def test_a_barrier_and_a_counter(open_client: OpenClient, tmp_path: Path) -> None:
    line = open_client().group_membership(barrier_group("x"))

    async def main() -> None:
        async with _opened(tmp_path) as locator, AsyncBarrier(locator, "x", 3) as barrier:
            cancelled = asyncio.create_task(barrier.wait())
            await asyncio.to_thread(eventually, line.membership_list)
            cancelled.cancel()
            await asyncio.wait([cancelled])
            await asyncio.to_thread(eventually, lambda: not line.membership_list())
            with pytest.raises(NotAcquiredError):
                await barrier.wait(0.1)
            assert sorted(await asyncio.gather(*(barrier.wait(10) for _ in range(3)))) == [0, 1, 2]
            counter = AsyncCounter(locator, "x")
            await asyncio.gather(*(counter.add(2) for _ in range(20)))
            assert await counter.compare_and_set(40, 7)
            assert await counter.value() == 7

    asyncio.run(main())


def test_a_long_wait_does_not_gather_callbacks(
    open_client: OpenClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = open_client().group_membership(semaphore_group("x"))
    added: list[Future[Any]] = []
    add = Future[Any].add_done_callback

    def adding(future: Future[Any], fn: Callable[[Future[Any]], object]) -> None:
        added.append(future)
        add(future, fn)

    # A wait is made of pieces of this length, in seconds: here of many.
    monkeypatch.setattr(aio, "_LONGEST_WAIT", 0.01)
    monkeypatch.setattr(Future, "add_done_callback", adding)

    async def main() -> None:
        async with _opened(tmp_path) as locator, AsyncSemaphore(locator, "x", 1) as semaphore:
            grip = await semaphore.acquire()
            waiting = asyncio.create_task(semaphore.acquire())
            await asyncio.to_thread(eventually, lambda: len(line.membership_list()) == 2)
            before = len(added)
            await asyncio.to_thread(throughout, lambda: len(added) < before + 40, seconds=1.0)
            await grip.release()
            await (await waiting).release()

    asyncio.run(main())
