"""Calls of an event loop that are cancelled or time out: what they leave behind, and when."""

import asyncio
import threading
from pathlib import Path

import pytest

from kip30 import OutcomeUnknownError
from kip30.aio import AsyncPluginLocator
from kip30.config import Written
from kip30_conformance.polling import time_scale

from .loops import PATIENCE, faults_of, occupy, properties, until, until_empty
from .trouble import has_arrived

_DELAY = 0.5


@pytest.mark.parametrize("end", ["late", "cancelled"])
def test_a_join_that_was_given_up_is_undone(tmp_path: Path, end: str) -> None:
    """The claim is granted after the call has ended, and given back."""

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            group = locator.group_membership("g")
            faults_of(locator).delay("membership.claim", _DELAY)
            if end == "late":
                assert locator._bridge is not None
                locator._bridge.turns._seconds = _DELAY / 5
                with pytest.raises(OutcomeUnknownError):
                    await group.join("m", "given up")
                locator._bridge.turns._seconds = PATIENCE * time_scale()
            else:
                joining = asyncio.create_task(group.join("m", "given up"))
                await until(lambda: faults_of(locator).counted() == 1)
                joining.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await joining
            assert group.member("m") is None
            await until(has_arrived, "the claim has arrived")
            await until_empty(group)
            assert (await group.join("m", "again")).is_valid()
            assert (await group.membership())["m"] == "again"

    asyncio.run(main())


def test_a_join_that_is_cancelled_in_the_queue_leaves_the_id_free(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            group, gate = locator.group_membership("g"), threading.Event()
            occupy(locator, gate)
            joining = asyncio.create_task(group.join("m", "given up"))
            await asyncio.sleep(0)
            joining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await joining
            gate.set()
            await group.join("m", "again")
            await group.leave("m")
            assert not await group.membership_list()

    asyncio.run(main())


def test_a_nomination_takes_one_operation_timeout_with_its_time_in_the_queue(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        seconds = 2 * time_scale()
        more: dict[str, Written] = {
            "plugin.operation.timeout.ms": round(1000 * seconds),
            "plugin.session.timeout.ms": round(5000 * seconds),
        }
        async with AsyncPluginLocator(properties(tmp_path, **more)) as locator:
            loop, gate = asyncio.get_running_loop(), threading.Event()
            faults_of(locator).delay("election.claim", 5 * seconds, times=None)
            occupy(locator, gate)
            loop.call_later(0.9 * seconds, gate.set)
            begun = loop.time()
            assert not await locator.leader_election("s").nominate("a", "")
            assert loop.time() - begun < 1.5 * seconds
            faults_of(locator).clear()

    asyncio.run(main())
