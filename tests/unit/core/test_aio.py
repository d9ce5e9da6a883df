import asyncio
import doctest
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip30 import (
    JSON,
    ClosedError,
    GuardError,
    InvalidNameError,
    KeyExistsError,
    KeySetChange,
    LeaderChange,
    MembershipChange,
    NotElectedError,
    PartialWriteError,
    UsageError,
    ValueChange,
    aio,
)
from kip30.aio import AsyncLeaderElection, AsyncPluginLocator
from kip30.config import Written

PATIENCE = 20


def properties(tmp_path: Path) -> dict[str, Written]:
    return {"plugin.backend": "embedded", "plugin.embedded.directory": tmp_path / "state"}


def test_storage(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage = locator.storage(JSON)
            version = await storage.put("n/a", [1])
            with pytest.raises(KeyExistsError):
                await storage.put("n/a", [2])
            await storage.compare_and_set("n/a", version, [3])
            found = await storage.get("n/a")
            assert found is not None
            assert found.value == [3]
            await storage.put_many({"n/b": 1, "n/c": 2})
            await storage.update("n/c", 3)
            assert await storage.fetch("n/c") == 3
            assert await storage.fetch_many(["n/a", "n/b", "n/x"]) == {"n/a": [3], "n/b": 1}
            with pytest.raises(UsageError, match="pass a list"):
                await storage.fetch_many("n/a")
            await storage.delete("n/b")
            assert await storage.list("n") == ("n/a", "n/c")
            many = await asyncio.gather(*(storage.fetch("n/a") for _ in range(200)))
            assert many == [[3]] * 200

    asyncio.run(main())


def test_a_codec_or_listener_that_is_none_is_refused(tmp_path: Path) -> None:
    """As the classes for threads refuse it; nothing would notice it before an event comes."""
    none: Any = 5
    unhashable: Any = type("Unhashable", (), {"__hash__": None, "__call__": print})()

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            for handle in (
                locator.storage,
                locator.listener_registry,
                partial(locator.group_membership, "g"),
                partial(locator.leader_election, "s"),
            ):
                with pytest.raises(UsageError, match="codec must be"):
                    handle(none)
            registry, group = locator.listener_registry(), locator.group_membership("g")
            for refused in (none, unhashable):
                for call in (
                    group.add_listener,
                    group.remove_listener,
                    locator.leader_election("s").add_listener,
                    locator.add_session_listener,
                    locator.remove_session_listener,
                    partial(registry.add_value_change_listener, "k"),
                ):
                    with pytest.raises(UsageError, match="a listener must be"):
                        await call(refused)

    asyncio.run(main())


def test_guards(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage = locator.storage()
            guards = {"n/g": await storage.put("n/g", "1")}
            await storage.put_many({"n/a": "1", "n/b": "1"}, guards=guards)
            version = await storage.set("n/a", "2", guards=guards)
            await storage.compare_and_set("n/a", version, "3", guards=guards)
            await storage.update("n/a", "4", guards=guards)
            await storage.delete("n/b", guards=guards)
            version = await storage.put("n/b", "1", guards=guards)
            await storage.update("n/g", "2")
            for write in (
                storage.put("n/c", "", guards=guards),
                storage.update("n/a", "", guards=guards),
                storage.set("n/a", "", guards=guards),
                storage.compare_and_set("n/b", version, "", guards=guards),
                storage.delete("n/b", guards=guards),
            ):
                with pytest.raises(GuardError):
                    await write
            with pytest.raises(PartialWriteError) as caught:
                await storage.put_many({"n/c": ""}, guards=guards)
            assert isinstance(caught.value.failed["n/c"], GuardError)
            assert await storage.fetch_many(["n/a", "n/b", "n/c"]) == {"n/a": "4", "n/b": "1"}

    asyncio.run(main())


def test_listeners_are_coroutines_of_the_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            storage, registry = locator.storage(), locator.listener_registry()
            changes: asyncio.Queue[ValueChange[str] | KeySetChange] = asyncio.Queue()
            await registry.add_value_change_listener("n/a", changes.put)
            await registry.add_key_set_change_listener("n", changes.put)
            await storage.put("n/a", "1")
            both = [await asyncio.wait_for(changes.get(), PATIENCE) for _ in range(2)]
            assert {type(change) for change in both} == {ValueChange, KeySetChange}
            await registry.remove_value_change_listener("n/a", changes.put)
            await registry.remove_key_set_change_listener("n", changes.put)
            await storage.update("n/a", "2")
            assert await storage.fetch("n/a") == "2"
            assert changes.empty()

    asyncio.run(main())


def test_membership_and_election(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            group, election = locator.group_membership("g"), locator.leader_election("s")
            seen: asyncio.Queue[MembershipChange[str] | LeaderChange[str]] = asyncio.Queue()
            await group.add_listener(seen.put)
            await election.add_listener(seen.put)
            member = await group.join("m", "1")
            member.check()
            joined = await asyncio.wait_for(seen.get(), PATIENCE)
            assert isinstance(joined, MembershipChange)
            assert joined.joined == {"m"}
            await group.update("m", "2")
            assert await group.membership() == {"m": "2"}
            assert await group.membership_list() == {"m"}
            await asyncio.wait_for(seen.get(), PATIENCE)
            await group.remove_listener(seen.put)
            assert await election.nominate("a", "x")
            leadership = await election.wait_elected("a", PATIENCE)
            assert leadership is not None
            elected = await asyncio.wait_for(seen.get(), PATIENCE)
            assert isinstance(elected, LeaderChange)
            await election.remove_listener(seen.put)
            await election.resign("a")
            assert await election.get_leader() is None
            await group.leave("m")

    asyncio.run(main())


def test_the_example_runs(tmp_path: Path) -> None:
    results = doctest.testmod(aio, extraglobs={"config": properties(tmp_path)})
    assert results.failed == 0
    assert results.attempted > 1


def test_lead_ends_with_its_block(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election = locator.leader_election("s")
            async with election.lead("a", "x") as leadership:
                assert election.leadership("a") is leadership
            assert not leadership.is_valid()
            assert await election.get_leader() is None
            with pytest.raises(InvalidNameError):
                async with election.lead("", "x"):
                    pytest.fail("leads")

    asyncio.run(main())


def test_lead_gives_up_in_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            first, second = locator.leader_election("s"), locator.leader_election("s")
            async with first.lead("a", ""):
                with pytest.raises(NotElectedError):
                    async with second.lead("b", "", timeout_seconds=0.1):
                        pytest.fail("two lead at once")
            assert await second.get_leader() is None

    asyncio.run(main())


def test_many_wait_to_lead_and_are_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            first, second = locator.leader_election("s"), locator.leader_election("s")

            async def wait(name: str) -> None:
                async with second.lead(name, ""):
                    pytest.fail("leads")

            async with first.lead("a", ""):
                waiting = [asyncio.create_task(wait(f"w{number}")) for number in range(40)]
                await asyncio.wait(waiting, timeout=0.5)
                for task in waiting:
                    task.cancel()
                ended = await asyncio.wait_for(
                    asyncio.gather(*waiting, return_exceptions=True), PATIENCE
                )
                assert {type(end) for end in ended} == {asyncio.CancelledError}
            assert await first.get_leader() is None

    asyncio.run(main())


def test_a_candidate_cancelled_before_its_nomination_never_leads(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election = locator.leader_election("s")

            async def lead() -> None:
                async with election.lead("a", ""):
                    await asyncio.sleep(PATIENCE)

            for _ in range(20):
                task = asyncio.create_task(lead())
                await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await election.get_leader() is None

    asyncio.run(main())


def test_closing_ends_the_wait(tmp_path: Path) -> None:
    async def lead(election: AsyncLeaderElection[str]) -> None:
        async with election.lead("b", ""):
            pytest.fail("leads")

    async def main() -> None:
        async with (
            AsyncPluginLocator(properties(tmp_path)) as other,
            other.leader_election("s").lead("a", ""),
        ):
            async with AsyncPluginLocator(properties(tmp_path)) as locator:
                task = asyncio.create_task(lead(locator.leader_election("s")))
                await asyncio.wait([task], timeout=0.3)
            with pytest.raises((NotElectedError, ClosedError)):
                await asyncio.wait_for(task, PATIENCE)

    asyncio.run(main())
