"""Coordinators of an event loop: called in it, awaited, cancelled, closed."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from kip30 import ClosedError, IllegalGenerationError, UnavailableError
from kip30.aio import AsyncPluginLocator
from kip30.coordinator import (
    AssignmentMetadata,
    GroupConfig,
    Item,
    JoinGroupMetadata,
    MemberIdentity,
)
from kip30.coordinator.aio import (
    AsyncCoordinator,
    AsyncLeaderCoordinator,
    AsyncPartitionCoordinator,
    AsyncWorkerCoordinator,
)
from kip30_conformance.clients.item_coordinator import balanced
from kip30_conformance.polling import eventually, time_scale
from tests.unit.core.loops import PATIENCE, faults_of, properties, until

CONFIG = GroupConfig(
    rebalance_timeout_seconds=5.0,
    heartbeat_seconds=0.5,
    initial_delay_seconds=0.1,
    coalesce_seconds=0.01,
)
COUNT = 6


async def broken(name: str) -> None:
    raise ValueError(name)


async def closed(name: str) -> None:
    raise ClosedError(name)


async def unavailable(name: str) -> None:
    raise UnavailableError(name)


async def cancelled(_name: str) -> None:
    """Await a task that was cancelled, as a listener does that stops its own job."""
    job = asyncio.create_task(asyncio.sleep(3600))
    job.cancel()
    await job


class Items(AsyncCoordinator):
    """Divides numbers; its methods are coroutine functions."""

    def __init__(self, locator: AsyncPluginLocator, group: str = "g") -> None:
        super().__init__(locator, group, config=CONFIG)
        self.calls: list[str] = []
        self.items: set[int] = set()
        self.pause = asyncio.Event()
        self.pause.set()
        self.raises: list[str] = []
        self.error: Callable[[str], Awaitable[None]] = broken

    async def _call(self, name: str) -> None:
        assert threading.current_thread() is threading.main_thread()
        self.calls.append(name)
        await self.pause.wait()
        if name in self.raises:
            self.raises.remove(name)
            await self.error(name)

    @override
    def protocol_type(self) -> str:
        return "items"

    @override
    async def metadata(self) -> Sequence[JoinGroupMetadata]:
        return [JoinGroupMetadata("even", b"")]

    @override
    async def on_join_prepare(self, generation: int, member_id: str) -> None:
        await self._call("on_join_prepare")
        self.items = set()

    @override
    async def perform_assignment(
        self, leader_id: str, protocol: str, all_member_metadata: Sequence[AssignmentMetadata]
    ) -> Mapping[str, bytes]:
        await self._call("perform_assignment")
        shares = balanced([one.member_id for one in all_member_metadata], {}, COUNT)
        return {name: json.dumps(sorted(share)).encode() for name, share in shares.items()}

    @override
    async def on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment: bytes
    ) -> None:
        await self._call("on_join_complete")
        self.items = {*json.loads(member_assignment)}

    @override
    async def on_lost(self, generation: int, member_id: str) -> None:
        await self._call("on_lost")
        self.items = set()

    @override
    def on_leave_prepare(self) -> None:
        self.calls.append("on_leave_prepare")


def in_loop(main: Any) -> None:
    """Run *main*, and expect that no thread is left."""
    before = {*threading.enumerate()}

    async def timed() -> None:
        async with asyncio.timeout(PATIENCE * time_scale() * 2):
            await main

    asyncio.run(timed())
    eventually(lambda: {*threading.enumerate()} <= before, what="no thread is left")


async def is_empty(locator: AsyncPluginLocator) -> bool:
    return not await locator.group_membership("kip30.group/g").membership_list()


def test_members_share_items_and_write_under_guards(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            AsyncPluginLocator(properties(tmp_path)) as locator,
            AsyncPluginLocator(properties(tmp_path)) as other,
        ):
            async with Items(locator) as first:
                assert await first.ready()
                async with Items(other) as second:
                    await until(lambda: {len(first.items), len(second.items)} == {3})
                    assert first.items | second.items == {*range(COUNT)}
                    await first.ready()
                    storage = first.storage()
                    version = await storage.put("a/b", "1")
                    version = await storage.compare_and_set("a/b", version, "2")
                    await storage.update("a/b", "3")
                    assert await storage.list() == ("a/b",)
                    found = await storage.get("a/b")
                    assert found is not None
                    assert found.value == "3"
                    await storage.delete("a/b")
                    lost = asyncio.create_task(second.wait_lost())
                    await asyncio.sleep(0)
                    assert not lost.done()
                await lost
                assert second.calls[-1] == "on_leave_prepare"
                with pytest.raises(IllegalGenerationError):
                    second.check()
                await until(lambda: len(first.items) == COUNT)
            with pytest.raises(IllegalGenerationError):
                await storage.set("a/b", "late")
            assert await is_empty(locator)

    in_loop(main())


def test_a_task_that_is_cancelled_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    async def take_part(locator: AsyncPluginLocator) -> None:
        async with Items(locator) as one:
            await one.ready()
            await one.wait_lost()

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            for number in range(25):
                task = asyncio.create_task(take_part(locator))
                await asyncio.sleep(0.01 * number)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await is_empty(locator)
                assert not [one for one in threading.enumerate() if "kip30-group" in one.name]

    in_loop(main())


def test_waiting_costs_no_thread_and_cancelling_it_does_no_harm(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator, Items(locator) as one:
            one.pause.clear()
            await until(lambda: one.calls == ["on_join_prepare"])
            before = threading.active_count()
            waiting = [asyncio.create_task(one.ready()) for _ in range(50)]
            await asyncio.sleep(0.1)
            # The dispatcher may have added a thread meanwhile; fifty that wait would add fifty.
            assert threading.active_count() < before + len(waiting) // 2
            for task in waiting[:25]:
                task.cancel()
            assert not await one.ready(0.05)
            one.pause.set()
            assert await asyncio.gather(*waiting[25:]) == [True] * 25
            assert one.calls == ["on_join_prepare", "perform_assignment", "on_join_complete"]

    in_loop(main())


@pytest.mark.case("K60")
@pytest.mark.parametrize("error", [broken, closed, unavailable, cancelled])
def test_a_member_outlives_what_its_callbacks_raise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Callable[[str], Awaitable[None]]
) -> None:
    names = ["on_join_prepare", "on_join_complete", "on_lost"]

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            one = Items(locator)
            one.raises, one.error = [*names], error
            async with one:
                assert await one.ready()
                assert one.calls.count("on_join_complete") == 2
                faults_of(locator).expire_session()
                await until(lambda: "on_lost" in one.calls)
                assert await one.ready()
                assert one.raises == []

    in_loop(main())
    assert caplog.text.count("poll failed") == len(names)


def test_close_in_a_call_of_the_application(tmp_path: Path) -> None:
    class Closing(Items):
        @override
        async def on_join_complete(self, *arguments: Any) -> None:
            await self.close()

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            one = await Closing(locator).__aenter__()
            await until(lambda: one.calls[-1:] == ["on_leave_prepare"])
            with pytest.raises(ClosedError):
                await one.ready()
            await one.close()
            assert await is_empty(locator)

    in_loop(main())


@pytest.mark.parametrize("end", ["close", "leave"])
def test_a_task_that_a_callback_has_started_waits_for_the_end(tmp_path: Path, end: str) -> None:
    class Starting(Items):
        job: asyncio.Task[list[str]]
        may_end: asyncio.Event

        async def work(self) -> list[str]:
            await self.may_end.wait()
            await getattr(self, end)()
            return [*self.calls]

        @override
        async def on_join_complete(self, *arguments: Any) -> None:
            self.job = asyncio.create_task(self.work())
            await super().on_join_complete(*arguments)

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            one = Starting(locator)
            one.may_end = asyncio.Event()
            async with one:
                assert await one.ready()
                one.may_end.set()
                assert (await one.job)[-1] == "on_leave_prepare"
                assert await is_empty(locator)

    in_loop(main())


def test_a_locator_that_is_closed_ends_a_call_and_a_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            one = await Items(locator).__aenter__()
            one.pause.clear()
            await until(lambda: one.calls == ["on_join_prepare"])
            waiting = asyncio.create_task(one.ready())
            await asyncio.sleep(0)
        # While the loop is still there: the thread that polls must not wait for its end.
        poller = one._member._thread
        assert poller is not None
        await until(lambda: not poller._thread.is_alive())
        with pytest.raises(ClosedError):
            await waiting
        await one.close()

    in_loop(main())


def test_a_lost_session_is_a_lost_share_and_a_fresh_join(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator, Items(locator) as one:
            await one.ready()
            faults_of(locator).expire_session()
            await one.wait_lost()
            await until(lambda: "on_lost" in one.calls and len(one.items) == COUNT)
            assert await one.ready()

    in_loop(main())


class Listener:
    """Hears of items or tasks, in the loop."""

    def __init__(self) -> None:
        self.held: set[Any] = set()

    async def on_assigned(self, items: Collection[Any]) -> None:
        await asyncio.sleep(0)
        self.held |= {*items}

    async def on_revoked(self, items: Collection[Any]) -> None:
        await asyncio.sleep(0)
        self.held -= {*items}

    on_started, on_stopped, on_lost = on_assigned, on_revoked, on_revoked


def test_partitions_and_tasks_are_given_to_listeners_of_the_loop(tmp_path: Path) -> None:
    async def topics() -> Mapping[str, int]:
        return {"t": 2}

    async def main() -> None:
        listener, works = Listener(), Listener()
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            async with (
                AsyncPartitionCoordinator(
                    locator,
                    "p",
                    subscription=["t"],
                    topics=topics,
                    listener=listener,
                    config=CONFIG,
                ) as one,
                AsyncWorkerCoordinator(
                    locator,
                    "w",
                    url="http://a",
                    tasks=lambda: ["x", "y"],
                    listener=works,
                    config=CONFIG,
                ) as other,
            ):
                await one.ready()
                await other.ready()
                assert listener.held == {Item("t", 0), Item("t", 1)} == one.owned
                assert works.held == {"x", "y"} == other.doing
            assert listener.held == works.held == set()

    in_loop(main())


def test_a_leader_is_elected_in_the_loop(tmp_path: Path) -> None:
    elected: list[MemberIdentity | None] = []

    async def on_elected(identity: MemberIdentity | None, _generation: int) -> None:
        elected.append(identity)

    async def main() -> None:
        async with (
            AsyncPluginLocator(properties(tmp_path)) as locator,
            AsyncLeaderCoordinator(
                locator,
                "l",
                identity=MemberIdentity("http://a"),
                on_elected=on_elected,
                config=CONFIG,
            ) as one,
        ):
            await one.ready()
            assert one.is_elected
            assert elected == [MemberIdentity("http://a")]
            await one.leave("done")
        assert elected[-1] is None

    in_loop(main())
