"""Listeners of an event loop: order, slowness, removal, and the end of the loop."""

import asyncio
import contextlib
import contextvars
import os
import subprocess
import sys
import threading
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from kip30 import InvalidNameError, PluginLocator, SessionLost, ValueChange
from kip30.aio import AsyncPluginLocator
from kip30.aio.listening import Listener
from kip30.runtime.dispatcher import Suspended
from kip30_conformance.polling import eventually, time_scale

from .loops import PATIENCE, faults_of, occupy, properties, threads, until


def test_plain_functions_are_called_in_the_loop_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            seen: list[tuple[str | None, asyncio.AbstractEventLoop]] = []

            def hear(change: ValueChange[str]) -> None:
                seen.append((change.value, asyncio.get_running_loop()))

            await locator.listener_registry().add_value_change_listener("k", hear, initial=True)
            await until(lambda: seen)
            assert seen == [(None, asyncio.get_running_loop())]

    asyncio.run(main())


def test_a_slow_listener_gets_the_newest_state_next(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage, registry = locator.storage(), locator.listener_registry()
            gate, seen, witnessed = asyncio.Event(), list[str | None](), list[str | None]()

            async def hear(change: ValueChange[str]) -> None:
                seen.append(change.value)
                await gate.wait()

            await registry.add_value_change_listener("k", hear)
            await registry.add_value_change_listener("k", lambda c: witnessed.append(c.value))
            await storage.put("k", "0")
            await until(lambda: seen)
            for number in range(1, 10):
                await storage.update("k", str(number))
            assert seen == ["0"]
            await until(lambda: witnessed[-1] == "9")
            gate.set()
            await until(lambda: seen == ["0", "9"])

    asyncio.run(main())


def test_every_loss_of_a_session_is_heard_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            losses: list[SessionLost] = []

            async def hear(loss: SessionLost) -> None:
                await asyncio.sleep(0.2)
                losses.append(loss)

            await locator.add_session_listener(hear)
            await locator.add_session_listener(hear)
            group = locator.group_membership("g")
            for number in range(2):
                await group.join(f"m{number}", "")
                faults_of(locator).expire_session()
                await until(lambda: group.member("m0"))
            await until(lambda: len(losses) == 2)
            await locator.remove_session_listener(hear)
            faults_of(locator).expire_session()
            await until(lambda: group.member("m0"))
            assert len(losses) == 2

    asyncio.run(main())


def test_a_listener_that_raises_hears_of_the_next_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage, seen = locator.storage(), list[str | None]()

            async def hear(change: ValueChange[str]) -> None:
                seen.append(change.value)
                await asyncio.sleep(0)
                raise RuntimeError("of the listener")

            await locator.listener_registry().add_value_change_listener("k", hear)
            await storage.put("k", "1")
            await until(lambda: seen == ["1"])
            await storage.update("k", "2")
            await until(lambda: seen == ["1", "2"])

    asyncio.run(main())
    assert "of the listener" in caplog.text


def test_a_listener_that_awaits_a_cancelled_task_is_logged_and_hears_of_the_next_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage, seen = locator.storage(), list[str | None]()

            async def hear(change: ValueChange[str]) -> None:
                seen.append(change.value)
                task = asyncio.ensure_future(asyncio.sleep(PATIENCE))
                task.cancel()
                await task

            await locator.listener_registry().add_value_change_listener("k", hear)
            await storage.put("k", "1")
            await until(lambda: seen == ["1"])
            await until(lambda: "awaited a task that was cancelled" in caplog.text)
            await storage.update("k", "2")
            await until(lambda: seen == ["1", "2"])

    asyncio.run(main())


def test_the_end_of_a_locator_logs_no_listener_that_it_cancels(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            begun = asyncio.Event()

            async def hear(_change: ValueChange[str]) -> None:
                begun.set()
                await asyncio.sleep(PATIENCE)

            await locator.listener_registry().add_value_change_listener("k", hear, initial=True)
            await begun.wait()

    asyncio.run(main())
    assert "listener" not in caplog.text


def test_a_listener_may_remove_itself_and_use_everything(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage, registry = locator.storage(), locator.listener_registry()
            seen, removed = list[str | None](), asyncio.Event()

            async def hear(_: ValueChange[str]) -> None:
                seen.append(await storage.fetch("k"))
                await registry.remove_value_change_listener("k", hear)
                removed.set()

            await registry.add_value_change_listener("k", hear)
            await storage.put("k", "1")
            await asyncio.wait_for(removed.wait(), PATIENCE * time_scale())
            await storage.update("k", "2")
            assert seen == ["1"]

    asyncio.run(main())


def test_a_listener_may_close_the_locator(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            closed = asyncio.Event()

            async def hear(_: ValueChange[str]) -> None:
                await locator.close()
                closed.set()

            await locator.listener_registry().add_value_change_listener("k", hear)
            await locator.storage().put("k", "1")
            await asyncio.wait_for(closed.wait(), PATIENCE * time_scale())

    asyncio.run(main())


def test_closing_cancels_the_listeners_that_are_under_way(tmp_path: Path) -> None:
    async def main() -> None:
        ended: list[str] = []
        entered = asyncio.Event()

        async def hear(_: ValueChange[str]) -> None:
            entered.set()
            try:
                await asyncio.sleep(PATIENCE * time_scale())
            finally:
                ended.append("cancelled")

        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            await locator.listener_registry().add_value_change_listener("k", hear)
            await locator.storage().put("k", "1")
            await entered.wait()
        assert ended == ["cancelled"]
        assert len(asyncio.all_tasks()) == 1

    before = threads()
    asyncio.run(main())
    assert threads() == before


def test_a_call_that_has_not_begun_when_its_listener_is_removed_never_does(tmp_path: Path) -> None:
    """A call is a task, and begins an iteration of the loop after it was made."""

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            registry, seen = locator.listener_registry(), list[object]()
            listener = Listener[object](registry._listeners, seen.append)
            for removed in (False, True):
                rest = Suspended()
                listener._start(removed, rest)
                listener.removed = removed
                await until(rest.done)
            assert seen == [False]

    asyncio.run(main())


def test_a_registration_that_is_cancelled_or_fails_leaves_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage, registry = locator.storage(), locator.listener_registry()
            seen: list[object] = []
            with pytest.raises(InvalidNameError):
                await registry.add_value_change_listener("", seen.append)
            for _ in range(20):
                adding = asyncio.create_task(
                    registry.add_value_change_listener("k", seen.append, initial=True)
                )
                await asyncio.sleep(0)
                adding.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await adding
                    await registry.remove_value_change_listener("k", seen.append)  # was too quick
                    seen.clear()
            await storage.put("k", "1")
            heard = asyncio.Event()
            await registry.add_value_change_listener("k", lambda _: heard.set(), initial=True)
            await asyncio.wait_for(heard.wait(), PATIENCE * time_scale())
            assert seen == []
            await registry.add_value_change_listener("k", seen.append, initial=True)
            await until(lambda: seen)
            assert len(seen) == 1

    asyncio.run(main())


def test_a_listener_may_come_back_while_it_is_removed(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage, registry = locator.storage(), locator.listener_registry()
            await storage.put("k", "")
            for number in range(10):
                seen: list[ValueChange[str]] = []
                await registry.add_value_change_listener("k", seen.append)
                adding = asyncio.create_task(
                    registry.add_value_change_listener(f"other{number}", seen.append)
                )
                await asyncio.sleep(0)
                adding.cancel()
                await asyncio.gather(
                    registry.remove_value_change_listener("k", seen.append),
                    registry.add_value_change_listener("k", seen.append),
                    registry.add_value_change_listener(f"other{number}", seen.append),
                )
                await storage.update("k", str(number))
                await storage.put(f"other{number}", str(number))
                wanted = {"k", f"other{number}"}
                await until(partial(_has_heard_of, wanted, seen))

    asyncio.run(main())


def _hear_if(late: asyncio.Event, heard: list[object], event: object) -> None:
    if late.is_set():
        heard.append(event)


def _has_heard_of(keys: set[str], changes: list[ValueChange[str]]) -> bool:
    return {change.key for change in changes} == keys


def test_a_closed_election_calls_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            for number in range(20):
                election, late = locator.leader_election(f"s{number}"), list[object]()
                closed = asyncio.Event()
                hear = partial(_hear_if, closed, late)
                await election.nominate("c", "", on_elected=hear, on_lost=hear)
                await election.close()
                closed.set()
                await locator.storage().put(f"k{number}", "")
                assert late == []

    asyncio.run(main())


def test_listeners_see_the_context_in_which_they_were_added(tmp_path: Path) -> None:
    async def main() -> None:
        variable = contextvars.ContextVar("variable", default="none")
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            seen: list[str] = []

            async def hear(_: ValueChange[str]) -> None:
                seen.append(variable.get())
                variable.set("changed")

            variable.set("request 7")
            await locator.listener_registry().add_value_change_listener("k", hear)
            variable.set("later")
            await locator.storage().put("k", "1")
            await until(lambda: seen == ["request 7"])
            await locator.storage().update("k", "2")
            await until(lambda: seen == ["request 7", "request 7"])

    asyncio.run(main())


_LEAVES_EVERYTHING = """
import asyncio, sys
from kip30 import PluginLocator
from kip30.aio import AsyncPluginLocator

config = {"plugin.backend": "embedded", "plugin.embedded.directory": sys.argv[1]}


async def main():
    global locator
    locator = await AsyncPluginLocator(config).__aenter__()

    async def hear(_):
        await asyncio.sleep(3600)

    await locator.listener_registry().add_value_change_listener("k", hear)
    await locator.add_session_listener(hear)
    await locator.leader_election("s").nominate("a", "", on_elected=hear, on_lost=hear)
    await locator.storage().put("k", "1")
    await asyncio.sleep(0.1)


loop = asyncio.new_event_loop()
loop.set_debug(True)
loop.slow_callback_duration = 3600  # it tells of slow callbacks, and the machine may be slow
loop.run_until_complete(main())
for task in asyncio.all_tasks(loop):
    task.cancel()
loop.run_until_complete(asyncio.sleep(0.05))
loop.close()
with PluginLocator().startup(config) as other:
    other.storage().update("k", "2")
    locator.backend.faults.expire_session()
"""


def test_a_loop_that_is_gone_neither_hangs_nor_complains(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONASYNCIODEBUG": "1"}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", _LEAVES_EVERYTHING, tmp_path / "state"],
        capture_output=True,
        text=True,
        timeout=20 * time_scale(),
        env=environment,
        check=False,
    )
    # The process may end before it notices that its session has.
    lost = "session lost: the store ended the session\n"
    assert ended.returncode == 0
    assert ended.stderr in {"", lost}


def test_a_future_that_a_blocking_callback_returns_holds_nothing_up(tmp_path: Path) -> None:
    with PluginLocator().startup(properties(tmp_path)) as client:
        seen: list[str | None] = []

        def hear(change: ValueChange[str]) -> Future[None]:
            seen.append(change.value)
            return Future()  # such as of a pool that is busy: it is the caller's own

        client.listener_registry().add_value_change_listener("k", hear)
        client.storage().put("k", "1")
        eventually(lambda: seen == ["1"])
        client.storage().update("k", "2")
        eventually(lambda: seen == ["1", "2"])


def test_a_listener_is_registered_although_another_task_gave_it_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            registry, gate, heard = locator.listener_registry(), threading.Event(), list[object]()

            async def hear(change: ValueChange[str]) -> None:
                heard.append(change.value)

            occupy(locator, gate)
            first = asyncio.create_task(registry.add_value_change_listener("k", hear))
            await asyncio.sleep(0)
            second = asyncio.create_task(registry.add_value_change_listener("k", hear))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            gate.set()
            await second
            await locator.storage().put("k", "v")
            await until(lambda: heard == ["v"])

    asyncio.run(main())


def test_a_removal_that_is_cancelled_is_carried_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            registry, gate = locator.listener_registry(), threading.Event()
            await registry.add_value_change_listener("k", print)
            feeds = locator._locator._open().subscriptions._feeds
            assert len(feeds) == 1
            occupy(locator, gate)
            removal = asyncio.create_task(registry.remove_value_change_listener("k", print))
            await asyncio.sleep(0)
            removal.cancel()
            with pytest.raises(asyncio.CancelledError):
                await removal
            gate.set()
            await until(lambda: not feeds)

    asyncio.run(main())
