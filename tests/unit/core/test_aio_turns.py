"""Many calls that begin together in an event loop, and calls that give back and are cancelled."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from kip30 import Kip30Error, LifecycleError, OutcomeUnknownError, UnavailableError
from kip30.aio import AsyncGroupMembership, AsyncPluginLocator
from kip30.aio.turns import CallTurns, IterationLimit
from kip30.aio.workers import Workers
from kip30.driver.clock import SystemClock
from kip30.recipes.aio import AsyncLock
from kip30.runtime.candidacy import Candidacy
from kip30.runtime.dispatcher import Dispatcher
from kip30_conformance.polling import time_scale
from tests.embedded_faults import faults_of

from .loops import occupy, properties, until, until_empty

LONG = 3600.0


async def _taken(turns: CallTurns, gate: asyncio.Event) -> float:
    async with turns as end:
        await gate.wait()
        return end


def test_calls_begin_in_the_order_in_which_they_came() -> None:
    async def main() -> None:
        turns, begun, gate = CallTurns(2, LONG, LONG), list[int](), asyncio.Event()

        async def call(number: int) -> None:
            async with turns:
                begun.append(number)
                await gate.wait()

        calls = [asyncio.create_task(call(number)) for number in range(7)]
        await asyncio.sleep(0)
        assert begun == [0, 1]
        calls[3].cancel()
        gate.set()
        await asyncio.gather(*calls, return_exceptions=True)
        assert begun == [0, 1, 2, 4, 5, 6]

    asyncio.run(main())


@pytest.mark.parametrize("answered", [True, False])
def test_a_queued_call_has_its_whole_time_if_the_store_answers(*, answered: bool) -> None:
    async def main() -> None:
        turns, loop, gate = CallTurns(1, LONG, LONG), asyncio.get_running_loop(), asyncio.Event()
        first = asyncio.create_task(_taken(turns, gate))
        await asyncio.sleep(0)
        second = asyncio.create_task(_taken(turns, gate))
        await asyncio.sleep(0.01)
        now = loop.time()
        if answered:
            turns.answered()
        gate.set()
        await first
        assert (await second >= now + LONG) == answered

    asyncio.run(main())


def test_without_answers_the_queue_ends_in_time() -> None:
    async def main() -> None:
        turns, gate = CallTurns(1, 0.05, 7), asyncio.Event()
        calls = [asyncio.create_task(_taken(turns, gate)) for _ in range(5)]
        for call in calls[1:]:
            with pytest.raises(UnavailableError, match="no answer for 7 s: nothing was sent"):
                await call
        gate.set()
        await calls[0]
        await _taken(turns, gate)

    asyncio.run(main())


def test_a_few_calls_begin_in_an_iteration_in_the_order_in_which_they_came() -> None:
    async def main() -> None:
        limit, begun = IterationLimit(3), list[int]()

        async def call(number: int) -> None:
            if not limit.admits():
                await limit.admitted()
            begun.append(number)

        calls = [asyncio.create_task(call(number)) for number in range(8)]
        await asyncio.sleep(0)
        assert begun == [0, 1, 2]
        calls[4].cancel()
        calls += [asyncio.create_task(call(8)), asyncio.create_task(call(9))]
        steps = [len(begun)]
        while len(begun) < 9:
            await asyncio.sleep(0)
            steps.append(len(begun) - sum(steps))
        assert begun == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        assert max(steps) == 3
        assert limit.admits()

    asyncio.run(main())


def test_a_turn_that_comes_with_a_cancellation_is_passed_on() -> None:
    async def main() -> None:
        turns, gate = CallTurns(1, LONG, LONG), asyncio.Event()
        calls = [asyncio.create_task(_taken(turns, gate)) for _ in range(3)]
        await asyncio.sleep(0)
        gate.set()
        await calls[0]  # the second has a turn by now, and does not know it yet
        calls[1].cancel()
        await calls[2]

    asyncio.run(main())


_CALLS: dict[str, Callable[[AsyncPluginLocator], Coroutine[Any, Any, object]]] = {
    "join": lambda locator: locator.group_membership("g").join("m", ""),
    "members": lambda locator: locator.group_membership("g").membership_list(),
    "leave": lambda locator: locator.group_membership("g").leave("m"),
    "nominate": lambda locator: locator.leader_election("s").nominate("c", ""),
    "leader": lambda locator: locator.leader_election("s").get_leader(),
    "resign": lambda locator: locator.leader_election("s").resign("c"),
    "put": lambda locator: locator.storage().put("k", "v"),
    "put_many": lambda locator: locator.storage().put_many({"k": "v"}),
    "get": lambda locator: locator.storage().get("k"),
    "listen": lambda locator: locator.listener_registry().add_value_change_listener("k", print),
}


@pytest.mark.parametrize("call", _CALLS.values(), ids=_CALLS)
def test_calls_of_each_kind_count_for_an_iteration(
    tmp_path: Path, call: Callable[[AsyncPluginLocator], Coroutine[Any, Any, object]]
) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            locator.bridge._iteration_limit = limit = IterationLimit(1)
            calls = [asyncio.create_task(call(locator)) for _ in range(3)]
            await asyncio.sleep(0)
            assert len(limit._queue) == 2
            await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.parametrize("lead", [False, True])
def test_a_nomination_is_prepared_when_it_may_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, lead: bool
) -> None:
    """A thousand candidacies that are made in one iteration would keep the loop."""

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election, made = locator.leader_election("s"), list[str]()
            make = election._handle.candidacy

            def note(candidate: str, *rest: Any, **named: Any) -> Candidacy:
                made.append(candidate)
                return make(candidate, *rest, **named)

            monkeypatch.setattr(election._handle, "candidacy", note)

            async def nominate(candidate: str) -> None:
                if not lead:
                    await election.nominate(candidate, "")
                    return
                async with election.lead(candidate, ""):
                    pass

            locator.bridge._iteration_limit = IterationLimit(1)
            calls = [asyncio.create_task(nominate(f"c{number}")) for number in range(3)]
            await asyncio.sleep(0)
            assert made == ["c0"]
            await asyncio.gather(*calls)
            assert made == ["c0", "c1", "c2"]

    asyncio.run(main())


def test_updates_that_wait_for_rejoins_leave_these_more_than_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an outage a program updates its members, and each update waits for a re-join."""
    members, updates = 100, 8
    patient = {"plugin.session.timeout.ms": 60_000, "plugin.operation.timeout.ms": 60_000}
    lock, begun, under_way, most = threading.Lock(), [0], [0], [0]

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path, **patient)) as locator:
            group, driver = locator.group_membership("g"), locator.bridge.store.drivers.membership
            names = [f"m{number}" for number in range(members)]
            await asyncio.gather(*(group.join(name, "") for name in names))
            claim = driver.claim

            def slow(group_name: str, name: str, *given: Any, **named: Any) -> Any:
                if name in names[-updates:] and begun[0] < members - updates:
                    raise UnavailableError("no answer")  # so that the updates wait
                with lock:
                    under_way[0] += 1
                    begun[0] += 1
                time.sleep(0.01)
                with lock:
                    if members // 2 < begun[0] < members - updates:  # all updates wait
                        most[0] = max(most[0], under_way[0])
                    under_way[0] -= 1
                return claim(group_name, name, *given, **named)

            monkeypatch.setattr(driver, "claim", slow)
            faults_of(locator.backend).expire_session()
            newest = [group.update(name, "new") for name in names[-updates:]]
            await asyncio.gather(*newest)
            await until(lambda: all(map(group.member, names)))
            assert most[0] >= 3

    asyncio.run(main())


def test_calls_that_hang_delay_others_for_a_share_of_their_time(tmp_path: Path) -> None:
    """They hold all threads that calls have, until more threads come to help."""
    seconds = 2 * time_scale()
    patient = {
        "plugin.session.timeout.ms": 60_000,
        "plugin.operation.timeout.ms": round(1000 * seconds),
    }

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path, **patient)) as locator:
            group, hung = locator.group_membership("g"), 6
            await group.join("first", "")
            faults_of(locator.backend).delay("membership.claim", LONG, times=hung)
            joins = [asyncio.create_task(group.join(f"m{number}", "")) for number in range(hung)]
            await asyncio.sleep(0)
            await group.update("first", "new")
            assert not any(join.done() for join in joins)
        await asyncio.wait(joins)
        assert all(isinstance(join.exception(), Kip30Error) for join in joins)

    asyncio.run(main())


def test_releases_of_grips_count_for_an_iteration(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            grips = [await AsyncLock(locator, f"x{number}").acquire() for number in range(3)]
            locator.bridge._iteration_limit = limit = IterationLimit(1)
            releases = [asyncio.create_task(grip.release()) for grip in grips]
            await asyncio.sleep(0)
            assert len(limit._queue) == 2
            await asyncio.gather(*releases)
            assert not any(grip.is_valid() for grip in grips)

    asyncio.run(main())


def test_more_calls_than_turns_are_all_done(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            group, registry = locator.group_membership("g"), locator.listener_registry()
            assert locator._bridge is not None
            locator._bridge.turns._free = 3
            await asyncio.gather(*(group.join(f"m{number}", "") for number in range(30)))
            assert len(await group.membership_list()) == 30
            listens = (registry.add_value_change_listener(f"k/{n}", print) for n in range(30))
            await asyncio.gather(*listens)
            await asyncio.gather(*(group.leave(f"m{number}") for number in range(30)))
            assert not await group.membership_list()

    asyncio.run(main())


async def _cancelled(call: Coroutine[Any, Any, object]) -> None:
    task = asyncio.create_task(call)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


Give = Callable[[AsyncGroupMembership[str]], Coroutine[Any, Any, object]]


give_back = pytest.mark.parametrize(
    "give", [lambda group: group.leave("m"), lambda group: group.close()], ids=["leave", "close"]
)


@give_back
@pytest.mark.parametrize("confirmed", [False, True])
def test_a_call_that_gives_back_and_gets_no_turn_is_not_said_to_be_unsent(
    tmp_path: Path, give: Give, *, confirmed: bool
) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            group, others = locator.group_membership("g"), locator.group_membership("g")
            member, gate = await group.join("m", ""), threading.Event()
            left = group._handle._lifecycles["m"].left
            assert locator._bridge is not None
            turns = locator._bridge.turns
            while turns._free:
                await turns.__aenter__()
            if not confirmed:
                occupy(locator, gate)
            giving = asyncio.create_task(give(group))
            await until(lambda: turns._queue)
            assert not member.is_valid()
            if confirmed:
                await until(lambda: all(map(Future.done, [left, *group._closing._in_store])))
            turns._seconds = 0.0
            turns._refuse_late()
            if confirmed:
                await giving
            else:
                with pytest.raises(OutcomeUnknownError):
                    await giving
            gate.set()
            await until_empty(others)

    asyncio.run(main())


@give_back
def test_a_cancelled_call_that_gives_back_takes_effect(tmp_path: Path, give: Give) -> None:
    """Locally before it is cancelled, also while all workers are busy; later in the store."""

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            group, others = locator.group_membership("g"), locator.group_membership("g")
            member, gate = await group.join("m", ""), threading.Event()
            occupy(locator, gate)
            assert locator._bridge is not None
            # A store that answers at once may end the call before it is cancelled.
            faults_of(locator._bridge.store.backend).delay("membership.release", 0.2)
            await _cancelled(give(group))
            assert not member.is_valid()
            gate.set()
            await until_empty(others)

    asyncio.run(main())


def test_many_leaves_that_are_cancelled_take_effect_at_once(tmp_path: Path) -> None:
    """Also those that wait for an iteration of the loop in which they may begin."""

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            group = locator.group_membership("g")
            members = await asyncio.gather(*(group.join(f"m{number}", "") for number in range(100)))
            leaves = [asyncio.create_task(group.leave(member.id)) for member in members]
            await asyncio.sleep(0)
            assert any(member.is_valid() for member in members)
            for leave in leaves:
                leave.cancel()
            await asyncio.wait(leaves)
            assert not any(member.is_valid() for member in members)
            await until_empty(group)

    asyncio.run(main())


def test_a_closed_election_has_resigned_although_it_was_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election, gate = locator.leader_election("s"), threading.Event()
            assert await election.nominate("c", "")
            term = election.leadership("c")
            occupy(locator, gate)
            await _cancelled(election.close())
            assert term is not None
            assert not term.is_valid()
            with pytest.raises(LifecycleError):
                await election.nominate("d", "")
            gate.set()
            await election.close()
            assert await locator.leader_election("s").get_leader() is None

    asyncio.run(main())


@pytest.mark.parametrize("fair", [False, True])
def test_a_closed_lock_is_released_although_it_was_cancelled(tmp_path: Path, *, fair: bool) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            lock, gate = AsyncLock(locator, "x", fair=fair), threading.Event()
            grip = await lock.acquire()
            occupy(locator, gate)
            await _cancelled(lock.close())
            assert not grip.is_valid()
            gate.set()
            await lock.close()
            await until(lambda: not grip.is_valid())
            assert await AsyncLock(locator, "x", fair=fair).try_acquire()

    asyncio.run(main())


def test_a_listener_is_removed_through_another_handle_of_the_locator(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            heard, stays = list[object](), list[object]()
            for function in (heard.append, stays.append):
                registry = locator.listener_registry()
                await registry.add_value_change_listener("k/x", function)
                await locator.group_membership("g").add_listener(function)
            removing = locator.listener_registry()
            await removing.remove_value_change_listener("k/x", heard.append)
            await locator.group_membership("g").remove_listener(heard.append)
            await locator.group_membership("other").remove_listener(stays.append)
            await locator.storage().put("k/x", "v")
            await locator.group_membership("g").join("m", "")
            await until(lambda: len(stays) == 2)
            assert not heard

    asyncio.run(main())


def test_a_driver_that_may_block_is_not_called_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = list[threading.Thread]()

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election = locator.leader_election("s")
            add = election._handle.add

            def note(*given: Any, **named: Any) -> Candidacy:
                called.append(threading.current_thread())
                return add(*given, **named)

            monkeypatch.setattr(election._handle, "add", note)
            assert locator.backend.is_blocking
            await election.nominate("a", "")
            async with locator.leader_election("t").lead("b", ""):
                pass

    asyncio.run(main())
    assert called
    assert threading.main_thread() not in called


def test_a_call_that_was_cancelled_in_the_queue_is_not_made() -> None:
    dispatcher, made, release = Dispatcher(SystemClock()), list[str](), threading.Event()
    try:
        workers = Workers(dispatcher, 1)
        first = workers.submit(release.wait)
        second = workers.submit(lambda: made.append("cancelled"))
        third = workers.submit(lambda: made.append("made"))
        assert second.cancel()
        release.set()
        assert first.result(10 * time_scale())
        third.result(10 * time_scale())
        assert made == ["made"]
    finally:
        release.set()
        dispatcher.close(10)
