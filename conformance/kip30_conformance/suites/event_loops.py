"""Guarantees of every store for `kip30.aio`: G23 to G26, G32, G40 and G41."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import pytest

from kip30 import Kip30Error, LeadershipLostError, PluginLocator, ValueChange, Version
from kip30.aio import AsyncLeadership, AsyncPluginLocator
from kip30.config import Written
from kip30.driver.records import Condition, Write, new_nonce
from kip30.names import Key
from kip30_conformance.client_faults import hook
from kip30_conformance.clients.loop_crowd import outcomes, steps
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.loop_meter import LoopMeter, metered_runner
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.process_resources import expect_no_more_than, resources_held, thread_names
from kip30_conformance.suite import Freeze, OpenClient, Suite, supported

T = TypeVar("T")

MANY = 200
THOUSANDS = 3000
FEW_THREADS = 10
_TEMPORARY = "kip30-worker"
"""The name of threads that end when there is nothing to do."""
_LOCATORS = 2
_WITH_MEMBERS = ("joins", "listeners")
"""Steps after which all have joined, and none has left."""
_LONGEST_ITERATION = 0.04
"""Seconds that the thread of a loop may compute in one iteration, without the garbage collector."""
_MANY_KEYS = 2_000
_MANY_WRITES = 200
_TRIES = 20
_MICROSECONDS = 0.001
"""The limit for a call that returns within microseconds: a store in memory answers at once."""


class EventLoopTests(Suite):
    """An event loop is never blocked, and a waiting call in it holds no thread."""

    @pytest.mark.timeout(600)
    def test_G23_waiting_holds_no_thread(self, harness: Harness, root: str) -> None:
        """Hundreds of candidates and listeners of one loop share a few threads."""
        timeouts = harness.contended
        # A store's library may keep something for good.
        PluginLocator().startup(harness.properties(root, **timeouts)).close()
        before = resources_held()

        async def lead(locator: AsyncPluginLocator, number: int) -> None:
            async with locator.leader_election(f"s{number}").lead("c", ""):
                pytest.fail("leads although another does")

        async def main() -> None:
            async with (
                _opened(harness, root, timeouts) as other,
                _opened(harness, root, timeouts) as locator,
            ):
                rivals = [other.leader_election(f"s{number}") for number in range(MANY)]
                await asyncio.gather(*(rival.nominate("first", "") for rival in rivals))
                await _until(
                    lambda: all(rival.leadership("first") for rival in rivals),
                    "the rivals lead",
                    within=60,
                )
                storage, election = locator.storage(), locator.leader_election("free")
                await storage.put("k", "v")
                await _until(_is_idle, _too_many_threads("idle threads have ended"))
                few = len(threading.enumerate()) + FEW_THREADS
                waiting = [asyncio.create_task(lead(locator, number)) for number in range(MANY)]
                await asyncio.gather(*(_listen(locator, number) for number in range(MANY)))
                await _until(
                    lambda: len(threading.enumerate()) <= few,
                    _too_many_threads(f"at most {few} threads"),
                )
                async with election.lead("c", ""):
                    await storage.update("k", "w")
                assert not any(task.done() for task in waiting)
                for task in waiting:
                    task.cancel()
                ended = await asyncio.gather(*waiting, return_exceptions=True)
                assert {type(end) for end in ended} == {asyncio.CancelledError}
                await rivals[0].resign("first")
                assert await locator.leader_election("s0").get_leader() is None

        asyncio.run(main())
        expect_no_more_than(before)

    def test_G24_lost_leadership_cancels_the_block(
        self, harness: Harness, root: str, timeouts: Mapping[str, Written], evidence: Evidence
    ) -> None:
        """The block under lead is cancelled when the leadership is lost, and says so."""

        async def main() -> None:
            async with _opened(harness, root, timeouts) as locator:
                election = locator.leader_election("s")
                terms: list[AsyncLeadership] = []

                async def lead() -> None:
                    async with election.lead("c", "") as leadership:
                        terms.append(leadership)
                        _expire_session(locator)
                        evidence.saw("expired session of epoch", leadership.epoch)
                        await asyncio.sleep(harness.crash_patience * time_scale())
                        pytest.fail("goes on without the leadership")

                with pytest.raises(LeadershipLostError):
                    await lead()
                assert terms[0].lost.is_set()
                assert not terms[0].is_valid()
                assert election.leadership("c") is None
                await election.nominate("c", "")
                assert await election.wait_elected("c", harness.crash_patience * time_scale())

        asyncio.run(main())

    def test_G24_the_block_goes_on_if_told_to(
        self, harness: Harness, root: str, timeouts: Mapping[str, Written], evidence: Evidence
    ) -> None:
        """With cancel_on_loss=False the block continues, and can await the loss."""

        async def main() -> None:
            async with _opened(harness, root, timeouts) as locator:
                election = locator.leader_election("s")
                async with election.lead("c", "", cancel_on_loss=False) as leadership:
                    _expire_session(locator)
                    evidence.saw("expired session of epoch", leadership.epoch)
                    await _soon(leadership.lost.wait(), harness.crash_patience)
                assert not leadership.is_valid()

        asyncio.run(main())

    def test_G25_slow_listeners(
        self,
        harness: Harness,
        root: str,
        open_client: OpenClient,
        timeouts: Mapping[str, Written],
    ) -> None:
        """Slow coroutine listeners hold no thread; each sees growing versions up to the last."""
        writer = open_client().storage()
        writer.put("k", "0")

        async def main() -> None:
            async with _opened(harness, root, timeouts) as locator:
                await locator.storage().get("k")
                few, gate = len(threading.enumerate()) + FEW_THREADS, asyncio.Event()
                slow = [_Slow(gate) for _ in range(MANY // 4)]
                for one in slow:
                    registry = locator.listener_registry()
                    await registry.add_value_change_listener("k", one.hear)
                await asyncio.to_thread(writer.update, "k", "1")
                await _until(lambda: all(one.versions for one in slow), "all have begun")
                for number in range(2, 5):
                    await asyncio.to_thread(writer.update, "k", str(number))
                last = await asyncio.to_thread(writer.update, "k", "5")
                await _until(
                    lambda: len(threading.enumerate()) <= few,
                    _too_many_threads(f"at most {few} threads"),
                )
                gate.set()
                await _until(lambda: all(one.versions[-1] == last for one in slow), "the last")
                assert {one.most_at_once for one in slow} == {1}
                assert all(one.versions == sorted(set(one.versions)) for one in slow)

        asyncio.run(main())

    def test_G25_no_call_after_a_removal(
        self,
        harness: Harness,
        root: str,
        open_client: OpenClient,
        timeouts: Mapping[str, Written],
    ) -> None:
        """Once a removal has returned no call starts, also of an event that is on its way."""
        writer = open_client().storage()

        async def main() -> None:
            async with _opened(harness, root, timeouts) as locator:
                registry, gate = locator.listener_registry(), asyncio.Event()
                gate.set()
                for number in range(20):
                    key, removed, witness = f"k{number}", _Slow(gate), _Slow(gate)
                    await registry.add_value_change_listener(key, removed.hear)
                    await registry.add_value_change_listener(key, witness.hear)
                    await asyncio.to_thread(writer.put, key, "v")
                    await registry.remove_value_change_listener(key, removed.hear)
                    calls = len(removed.versions)
                    await asyncio.to_thread(writer.update, key, "w")
                    await _until(partial(_has_heard, witness), "the witness hears")
                    assert len(removed.versions) == calls

        asyncio.run(main())

    def test_G26_a_silent_store_does_not_block_the_loop(
        self,
        harness: Harness,
        root: str,
        timeouts: Mapping[str, Written],
        freeze: Freeze,
        evidence: Evidence,
    ) -> None:
        """While the store does not respond, all calls end in time and the loop keeps running."""

        async def main() -> None:
            async with _opened(harness, root, timeouts) as locator:
                await locator.storage().put("k", "v")
                heart = _Heart()
                beating = asyncio.create_task(heart.beat())
                with freeze():
                    started = time.monotonic()
                    calls = [call for _ in range(20) for call in _calls(locator)]
                    ended = await asyncio.gather(*calls, return_exceptions=True)
                    took = time.monotonic() - started
                beating.cancel()
                refused = [end for end in ended if isinstance(end, Kip30Error)]
                evidence.saw("calls without an answer", len(refused))
                assert all(
                    isinstance(end, Kip30Error) or not isinstance(end, BaseException)
                    for end in ended
                )
                limit = float(str(timeouts["plugin.operation.timeout.ms"])) / 1000
                assert took < 1.5 * limit + time_scale()
                assert heart.longest_gap < limit / 2

        asyncio.run(main())

    @pytest.mark.heavy
    @pytest.mark.timeout(900)
    def test_G40_thousands_begun_together(self, harness: Harness, root: str) -> None:
        """Thousands of calls that begin together are all done, with few threads and a free loop."""
        before = _own_threads()

        async def main(meter: LoopMeter) -> None:
            async with _opened(harness, root, harness.contended) as locator:
                group = locator.group_membership("g")
                for name, calls in steps(locator, THOUSANDS):
                    meter.lap()
                    done = await outcomes(calls)
                    use = meter.lap()
                    errors = [one for one in done if isinstance(one, BaseException)]
                    assert not errors, f"{len(errors)} {name} failed, the first by {errors[0]!r}"
                    members = THOUSANDS if name in _WITH_MEMBERS else 0
                    assert len(await group.membership_list()) == members
                    own = sum(use.own_threads.values()) - before
                    assert own <= FEW_THREADS + harness.client_threads, (name, use.own_threads)
                    assert use.computing < _LONGEST_ITERATION * time_scale(), (name, use)
                    assert use.blocked < 0.5 * time_scale(), (name, use)

        with metered_runner() as (runner, meter):
            runner.run(main(meter))

    def test_G41_cancelled_calls_give_back(
        self, harness: Harness, root: str, open_client: OpenClient, timeouts: Mapping[str, Written]
    ) -> None:
        """A cancelled leave or close takes effect at once, and soon in the store."""
        group = open_client().group_membership("g")

        async def main() -> None:
            async with _opened(harness, root, timeouts) as locator:
                leaves, closes = locator.group_membership("g"), locator.group_membership("g")
                members = [await leaves.join(f"m{each}", "") for each in range(20)]
                members += [await closes.join(f"n{each}", "") for each in range(20)]
                calls = [leaves.leave(f"m{each}") for each in range(20)]
                for call in (*calls, closes.close()):
                    ending = asyncio.create_task(call)
                    await asyncio.sleep(0)
                    ending.cancel()
                    await asyncio.wait([ending])
                assert not any(member.is_valid() for member in members)
                await asyncio.to_thread(eventually, lambda: not group.membership_list())

        asyncio.run(main())

    def test_G32_calls_that_do_not_block(self, client: PluginLocator) -> None:
        """A driver that is declared not to block returns before the work of a call is done."""
        backend = client.backend
        if backend.is_blocking:
            return
        keys = [Key("n", str(number)) for number in range(_MANY_KEYS)]
        writes = [Write(key, new_nonce(), b"v", Condition.ANY) for key in keys[:_MANY_WRITES]]
        calls: Mapping[str, Callable[[], Future[Any]]] = {
            "read": lambda: backend.storage.read(keys),
            "write_many": lambda: backend.storage.write_many(writes)[-1],
        }
        for what, call in calls.items():
            assert not all(_blocks(call) for _ in range(_TRIES)), (
                f"{what} does its work before it returns: declare `is_blocking`"
            )


def _blocks(call: Callable[[], Future[Any]]) -> bool:
    """Return whether the answer is there when *call* returns, and took time."""
    started = time.monotonic()
    future = call()
    took, is_done = time.monotonic() - started, future.done()
    future.result()
    return is_done and took > _MICROSECONDS


class _Slow:
    """A listener that ends no call before *gate* is open."""

    def __init__(self, gate: asyncio.Event) -> None:
        self.versions: list[Version] = []
        self.most_at_once = 0
        self._at_once = 0
        self._gate = gate

    async def hear(self, change: ValueChange[str]) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        assert change.version is not None
        self.versions.append(change.version)
        await self._gate.wait()
        await asyncio.sleep(0.001)
        self._at_once -= 1


class _Heart:
    """Beats in a loop, and remembers when it could not."""

    def __init__(self) -> None:
        self.longest_gap = 0.0

    async def beat(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            self.longest_gap, last = max(self.longest_gap, now - last), now


def _opened(harness: Harness, root: str, timeouts: Mapping[str, Written]) -> AsyncPluginLocator:
    return AsyncPluginLocator(harness.properties(root, **timeouts))


def _expire_session(locator: AsyncPluginLocator) -> None:
    supported(hook(locator.backend, "expire_session"))


def _own_threads() -> int:
    return sum(thread.name.startswith("kip30") for thread in threading.enumerate())


def _is_idle() -> bool:
    """Return whether threads have ended, except one of each locator that checks its lease."""
    temporary = [one for one in threading.enumerate() if one.name.startswith(_TEMPORARY)]
    return len(temporary) <= _LOCATORS


def _has_heard(one: _Slow) -> bool:
    return bool(one.versions)


async def _listen(locator: AsyncPluginLocator, number: int) -> None:
    async def hear(_: object) -> None:
        await asyncio.sleep(3600)

    match number % 3:
        case 0:
            await locator.listener_registry().add_value_change_listener(f"n/k{number}", hear)
        case 1:
            await locator.group_membership(f"g{number}").add_listener(hear)
        case _:
            await locator.leader_election(f"s{number}").add_listener(hear)


def _calls(locator: AsyncPluginLocator) -> list[Awaitable[object]]:
    storage, registry = locator.storage(), locator.listener_registry()
    election, group = locator.leader_election("s"), locator.group_membership("g")
    return [
        storage.update("k", "w"),
        storage.get("k"),
        storage.fetch_many(["k", "l"]),
        election.nominate("c", ""),
        election.get_leader(),
        group.join("m", ""),
        group.membership(),
        registry.add_value_change_listener("k", print),
    ]


def _too_many_threads(wanted: str) -> Callable[[], str]:
    """Return a function that names the present threads, after those *wanted*."""
    return lambda: f"{wanted}; there are {threading.active_count()}: {thread_names()}"


async def _until(
    probe: Callable[[], bool], what: str | Callable[[], str], *, within: float = 10.0
) -> None:
    """Poll *probe*, without blocking the loop."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within * time_scale()):
            while not probe():  # noqa: ASYNC110  what is polled are threads and other tasks
                await asyncio.sleep(0.005)
    assert probe(), f"not within {within:g} s: {what if isinstance(what, str) else what()}"


async def _soon(awaitable: Awaitable[T], seconds: float) -> T:
    return await asyncio.wait_for(awaitable, seconds * time_scale())
