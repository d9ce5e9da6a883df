"""Lifecycle of an async locator: where it may be used, how its calls end, what it leaves."""

import asyncio
import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import assert_type

import pytest

from kip30 import (
    JSON,
    ClosedError,
    KeyExistsError,
    Kip30Error,
    LifecycleError,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)
from kip30.aio import (
    AsyncGroupMembership,
    AsyncLeaderElection,
    AsyncListenerRegistry,
    AsyncPluginLocator,
    AsyncStorage,
)
from kip30.aio.workers import Workers
from kip30.driver.clock import SystemClock
from kip30.driver.records import Version, Write
from kip30.recipes.aio import AsyncLock
from kip30.runtime.dispatcher import Dispatcher
from kip30_conformance.clients.fork_calls import in_forked_child
from kip30_conformance.polling import eventually, time_scale

from .loops import PATIENCE, faults_of, occupy, properties, threads, until

MOST = 4
LONG = 3600


@contextlib.contextmanager
def locked(tmp_path: Path) -> Iterator[None]:
    file = tmp_path / "state" / "kip30.db"
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield
        database.execute("ROLLBACK")


def test_handles_have_the_type_of_their_codec(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            assert locator.backend.name == "embedded"
            assert_type(locator.storage(), AsyncStorage[str])
            assert_type(locator.listener_registry(), AsyncListenerRegistry[str])
            assert_type(locator.group_membership("g"), AsyncGroupMembership[str])
            assert_type(locator.leader_election("s"), AsyncLeaderElection[str])
            await locator.storage(JSON).put("k", [1])

    asyncio.run(main())


def test_another_loop_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage = locator.storage()

            async def elsewhere() -> None:
                with pytest.raises(LifecycleError, match="another event loop"):
                    await storage.get("k")
                with pytest.raises(LifecycleError, match="another event loop"):
                    locator.storage()

            await asyncio.to_thread(asyncio.run, elsewhere())
            assert await storage.get("k") is None

    asyncio.run(main())


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "stopped"])
def test_a_locator_is_closed_in_another_loop_after_its_own_has_ended(
    tmp_path: Path, *, closed: bool
) -> None:
    kept = list[object]()  # or asyncio would log that they are pending

    async def main() -> AsyncPluginLocator:
        locator = await AsyncPluginLocator(properties(tmp_path)).__aenter__()
        election, heard = locator.leader_election("s"), asyncio.Event()

        async def hear(_: object) -> None:
            heard.set()
            await asyncio.sleep(LONG)

        async def lead() -> None:
            async with election.lead("a", ""):
                await asyncio.sleep(LONG)

        kept.append(asyncio.create_task(lead()))
        await locator.listener_registry().add_value_change_listener("k", hear)
        await locator.storage().put("k", "v")
        await heard.wait()
        await until(lambda: election.leadership("a"))
        return locator

    loop = asyncio.new_event_loop()
    locator = loop.run_until_complete(main())
    kept += asyncio.all_tasks(loop)
    if closed:
        loop.close()
    asyncio.run(locator.close())
    with pytest.raises(ClosedError):
        locator.storage()
    loop.close()


def test_loops_in_several_threads_have_a_locator_each(tmp_path: Path) -> None:
    async def main(number: int) -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            await locator.storage().put(f"k{number}", "v")

    async def all_at_once() -> None:
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, main(number)) for number in range(4)))

    asyncio.run(all_at_once())


def test_a_forked_child_is_refused_and_ends_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage = locator.storage()
            await storage.put("k", "v")

            def in_child() -> str:
                return repr(step_by_step(storage.get("k")))

            assert in_forked_child(in_child) == "LifecycleError"
            lock = AsyncLock(locator, "x")
            grip = await lock.acquire()
            for close in (grip.release, grip.close, lock.close, storage.close, locator.close):
                coroutine = close()
                assert in_forked_child(partial(step_by_step, coroutine)) == "None"
                coroutine.close()
            assert await storage.fetch("k") == "v"
            grip.check()
            assert await lock.try_acquire() is None

    asyncio.run(main())


def step_by_step(coroutine: object) -> object:
    """Run a coroutine that never has to wait."""
    send = getattr(coroutine, "send")  # noqa: B009  a coroutine of any kind
    try:
        send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("waits")


def test_use_before_and_after(tmp_path: Path) -> None:
    async def main() -> None:
        locator = AsyncPluginLocator(properties(tmp_path))
        with pytest.raises(LifecycleError):
            locator.storage()
        await locator.close()
        async with locator:
            storage, election = locator.storage(), locator.leader_election("s")
            with pytest.raises(LifecycleError, match="started already"):
                await locator.__aenter__()
            await storage.put("k", "v")
            async with locator.storage() as other:
                assert await other.fetch("k") == "v"
            with pytest.raises(LifecycleError):
                await other.fetch("k")
            async with locator.leader_election("s") as closed:
                await closed.nominate("c", "")
            with pytest.raises(LifecycleError, match="handle is closed"):
                await closed.wait_elected("c")
        await locator.close()
        for call in (
            storage.get("k"),
            storage.put("l", "v"),
            election.nominate("c", ""),
            election.wait_elected("c"),
            locator.add_session_listener(print),
        ):
            with pytest.raises(ClosedError):
                await call

    asyncio.run(main())


def test_a_start_that_fails_can_be_repeated(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "state").touch()
        locator = AsyncPluginLocator(properties(tmp_path))
        with pytest.raises(StoreError):
            await locator.__aenter__()
        (tmp_path / "state").unlink()
        async with locator:
            await locator.storage().put("k", "v")

    asyncio.run(main())


def test_a_start_that_is_cancelled_leaves_nothing_open(tmp_path: Path) -> None:
    async def main() -> None:
        for number in range(5):
            kept.append(AsyncPluginLocator(properties(tmp_path)))
            starting = asyncio.create_task(kept[-1].__aenter__())
            await asyncio.sleep(number * 0.001)
            starting.cancel()
            try:
                await starting
                await kept[-1].close()  # too late to be cancelled
            except asyncio.CancelledError:
                cancelled.append(number)
        assert cancelled

    kept: list[AsyncPluginLocator] = []  # so that it is not their collection that closes them
    cancelled: list[int] = []
    before = threads()
    asyncio.run(main())
    eventually(lambda: threads() == before)
    assert not list((tmp_path / "state" / "sessions").glob("*"))


def test_closing_goes_on_if_its_task_is_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        locator = await AsyncPluginLocator(properties(tmp_path)).__aenter__()
        await locator.group_membership("g").join("m", "")
        closing = asyncio.create_task(locator.close())
        await asyncio.sleep(0)
        closing.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # unless it was closed before
            await closing
        with pytest.raises(ClosedError):
            locator.storage()

    before = threads()
    asyncio.run(main())
    assert threads() == before


def test_a_lost_answer_is_settled(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage = locator.storage()
            faults_of(locator).lose_answers("storage.write")
            version = await storage.put("k", "v")
            found = await storage.get("k")
            assert found is not None
            assert found.version == version
            with pytest.raises(KeyExistsError):
                await storage.put("k", "w")

    asyncio.run(main())


def test_calls_end_in_time_although_all_workers_are_busy(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage, started = locator.storage(), time.monotonic()
            await storage.put("k", "v")
            with locked(tmp_path):
                calls = [storage.update("k", str(number)) for number in range(50)]
                writing = asyncio.gather(*calls, return_exceptions=True)
                await asyncio.sleep(0.1)
                assert await storage.fetch("k") == "v"
                assert await locator.leader_election("s").get_leader() is None
                assert not writing.done()
                ended = await writing
            assert time.monotonic() - started < PATIENCE * time_scale() / 2
            assert all(isinstance(end, UnavailableError | OutcomeUnknownError) for end in ended)
            assert any("no thread was free" in str(end) for end in ended)
            assert threads()["kip30-worker"] <= 10
            await storage.put("l", "after")
            assert await storage.fetch("l") == "after"

    asyncio.run(main())


def test_cancelled_calls_hold_up_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage = locator.storage()
            await storage.put("k", "v")
            with locked(tmp_path):
                calls = [asyncio.create_task(storage.update("k", "w")) for _ in range(50)]
                await asyncio.sleep(0.1)
                for call in calls:
                    call.cancel()
                ended = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(end) for end in ended} == {asyncio.CancelledError}
            await storage.update("k", "after")

    asyncio.run(main())


def test_closing_ends_calls_that_wait_for_the_store(tmp_path: Path) -> None:
    async def main() -> None:
        more = {"plugin.operation.timeout.ms": 60_000, "plugin.session.timeout.ms": 200_000}
        async with AsyncPluginLocator(properties(tmp_path, **more)) as locator:
            storage = locator.storage()
            await storage.put("k", "v")
            faults_of(locator).delay("storage.write", 60, times=None)
            calls = [asyncio.create_task(storage.update("k", "w")) for _ in range(20)]
            await asyncio.sleep(0.1)
        ended = await asyncio.wait_for(
            asyncio.gather(*calls, return_exceptions=True), PATIENCE * time_scale()
        )
        assert all(isinstance(end, Kip30Error) for end in ended)

    asyncio.run(main())


def test_the_loop_is_never_blocked_in_debug_mode(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A loop that waits for the store is blocked for the operation timeout.
    slow_seconds = 0.5 * time_scale()
    timeouts = {
        "plugin.session.timeout.ms": round(4000 * slow_seconds),
        "plugin.operation.timeout.ms": round(3000 * slow_seconds),
    }

    async def main() -> None:
        asyncio.get_running_loop().slow_callback_duration = slow_seconds
        async with AsyncPluginLocator(properties(tmp_path, **timeouts)) as locator:
            storage = locator.storage()
            await storage.put("k", "v")
            with locked(tmp_path):
                with pytest.raises(Kip30Error):
                    await storage.update("k", "w")
                assert await storage.fetch("k") == "v"
                await locator.leader_election("s").nominate("c", "")
            async with locator.leader_election("t").lead("c", ""):
                pass

    asyncio.run(main(), debug=True)
    assert "Executing" not in caplog.text
    assert "never awaited" not in caplog.text


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    made = Dispatcher(SystemClock(), name="test")
    yield made
    made.close(PATIENCE * time_scale())


def test_calls_that_block_are_few_and_their_threads_go_away(dispatcher: Dispatcher) -> None:
    workers, gate, begun = Workers(dispatcher, MOST), threading.Event(), list[int]()

    def block() -> bool:
        begun.append(1)
        return gate.wait()

    calls = [workers.submit(block) for _ in range(3 * MOST)]
    eventually(lambda: len(begun) == MOST)
    ran = threading.Event()
    dispatcher.task(ran.set, "another").wake()
    assert ran.wait(PATIENCE * time_scale())
    assert len(begun) == MOST
    gate.set()
    assert all(call.result(PATIENCE * time_scale()) for call in calls)
    eventually(lambda: not threads()["test-worker"])
    assert workers.submit(lambda: 7).result(PATIENCE * time_scale()) == 7


def test_calls_leave_callbacks_their_turn(dispatcher: Dispatcher) -> None:
    workers, called, calls = Workers(dispatcher, MOST), threading.Event(), list[Future[None]]()

    def work() -> None:
        time.sleep(0.001)
        if len(calls) < 2000 and not called.is_set():
            calls.append(workers.submit(work))

    for _ in range(3 * MOST):
        calls.append(workers.submit(work))
    dispatcher.task(called.set, "callback", calls_back=True).wake()
    assert called.wait(PATIENCE * time_scale())
    assert len(calls) < 1000


def test_the_end_of_the_dispatcher_fails_calls_that_queue(dispatcher: Dispatcher) -> None:
    workers, gate, begun = Workers(dispatcher, 1), threading.Event(), threading.Event()

    def block() -> bool:
        begun.set()
        return gate.wait()

    call, queued = workers.submit(block), workers.submit(block)
    assert begun.wait(PATIENCE * time_scale())
    dispatcher.close(0)
    for late in (queued, workers.submit(block)):
        with pytest.raises(ClosedError):
            late.result(0)
    gate.set()
    assert call.result(PATIENCE * time_scale())


def test_a_call_waits_for_a_thread_while_the_system_has_none(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    dispatcher.start()
    workers = Workers(dispatcher, MOST)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        call = workers.submit(lambda: 7)
        with pytest.raises(TimeoutError):
            call.result(0.1)
    assert call.result(PATIENCE * time_scale()) == 7


def test_a_call_that_is_done_is_not_kept_alive(dispatcher: Dispatcher) -> None:
    class Big:
        alive = 0

        def __init__(self) -> None:
            Big.alive += 1

        def __del__(self) -> None:
            Big.alive -= 1

        def call(self) -> None:
            pass

    Workers(dispatcher, MOST).submit(Big().call).result(PATIENCE * time_scale())
    eventually(lambda: Big.alive == 0, within=0.5)


def test_without_a_thread_to_spare_no_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        locator = AsyncPluginLocator(properties(tmp_path))
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(UnavailableError, match="no thread to spare"):
                await locator.__aenter__()
        async with locator:
            assert await locator.storage().get("k") is None

    asyncio.run(main())


def test_a_write_is_unknown_if_its_outcome_cannot_be_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            gate, lost = threading.Event(), list[Future[Version]]()
            driver = locator.backend.storage
            write = driver.write

            def lose(request: Write) -> Future[Version]:
                write(request).result()
                lost.append(Future())
                return lost[0]

            monkeypatch.setattr(driver, "write", lose)
            putting = asyncio.create_task(locator.storage().put("k", "v"))
            await until(lambda: lost)
            occupy(locator, gate)
            lost[0].set_exception(OutcomeUnknownError("the answer was lost"))
            with pytest.raises(OutcomeUnknownError, match="the answer was lost"):
                await putting
            gate.set()
            assert await locator.storage().get("k") is not None

    asyncio.run(main())
