"""The lock of an event loop, when tasks are cancelled at any moment."""

import asyncio
import threading
from pathlib import Path

import pytest

from kip30 import ClosedError, NotAcquiredError
from kip30.aio import AsyncPluginLocator
from kip30.recipes import Lock
from kip30.recipes.aio import AsyncLock
from kip30.recipes.lock import lock_service
from kip30_conformance.polling import eventually

from .conftest import OpenClient

both = pytest.mark.parametrize("fair", [False, True], ids=["any order", "fair"])


def _opened(folder: Path) -> AsyncPluginLocator:
    return AsyncPluginLocator(
        {
            "plugin.backend": "embedded",
            "plugin.embedded.directory": folder / "state",
            "plugin.session.timeout.ms": 2000,
            "plugin.operation.timeout.ms": 1500,
        }
    )


@both
def test_a_task_that_is_cancelled_at_any_moment_leaves_nothing(
    open_client: OpenClient, tmp_path: Path, *, fair: bool
) -> None:
    other = open_client()
    holder, line = Lock(other, "x", fair=fair), other.group_membership(lock_service("x"))

    async def main() -> None:
        async with _opened(tmp_path) as locator:
            lock = AsyncLock(locator, "x", fair=fair)
            for steps in range(40):
                task = asyncio.create_task(lock.acquire())
                await asyncio.sleep(0.0005 * steps)
                task.cancel()
                try:
                    grip = await task
                except asyncio.CancelledError:
                    continue
                await grip.release()
            await asyncio.to_thread(eventually, lambda: holder.holder() is None)
            await asyncio.to_thread(eventually, lambda: not line.membership_list())
            async with await lock.acquire(10) as grip:
                grip.check()

    asyncio.run(main())


@both
def test_a_timeout_of_the_loop_leaves_nothing(
    open_client: OpenClient, tmp_path: Path, *, fair: bool
) -> None:
    holder = Lock(open_client(), "x", fair=fair)
    grip = holder.acquire()

    async def main() -> None:
        async with _opened(tmp_path) as locator, AsyncLock(locator, "x", fair=fair) as lock:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await lock.acquire()
            with pytest.raises(NotAcquiredError):
                await lock.acquire(0.1)
            await asyncio.to_thread(grip.release)
            async with await lock.acquire(10) as ours:
                assert ours.token > grip.token

    asyncio.run(main())
    assert holder.holder() is None


def test_tasks_that_wait_learn_that_the_locator_was_closed(
    open_client: OpenClient, tmp_path: Path
) -> None:
    Lock(open_client(), "x").acquire()

    async def main() -> None:
        async with _opened(tmp_path) as locator:
            lock = AsyncLock(locator, "x")
            waiting = asyncio.create_task(lock.acquire())
            await asyncio.sleep(0.2)
        with pytest.raises(ClosedError):
            await waiting

    before = threading.active_count()
    asyncio.run(main())
    eventually(lambda: threading.active_count() <= before)


def test_a_grip_that_is_lost_is_known_in_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with _opened(tmp_path) as locator:
            grip = await AsyncLock(locator, "x").acquire()
            locator.backend.faults.expire_session()  # type: ignore[attr-defined]
            async with asyncio.timeout(10):
                await grip.lost.wait()
            assert not grip.is_valid()
            await grip.release()

    asyncio.run(main())


@both
def test_a_task_waits_also_while_other_calls_have_all_threads(
    tmp_path: Path, *, fair: bool
) -> None:
    async def main() -> None:
        async with _opened(tmp_path) as locator:
            lock, may_end = AsyncLock(locator, "x", fair=fair), threading.Event()
            calls = [locator.bridge.submit(may_end.wait) for _ in range(100)]
            acquiring = asyncio.create_task(lock.acquire())
            tried = asyncio.create_task(lock.try_acquire())
            try:
                # By its end a call that finds no thread within an operation timeout has failed.
                assert await asyncio.wait_for(tried, 30) is None
                await asyncio.wait([acquiring], timeout=2.0)
                assert not acquiring.done()
            finally:
                may_end.set()
            async with await asyncio.wait_for(acquiring, 30) as grip:
                grip.check()
            await asyncio.wait([asyncio.wrap_future(call) for call in calls])

    asyncio.run(main())
