"""Leading and being a member in an event loop: callbacks, cancellation, and the clock."""

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import pytest

from kip30 import (
    AlreadyNominatedError,
    Leadership,
    LeadershipLostError,
    NotElectedError,
    PluginLocator,
    UsageError,
    Version,
)
from kip30.aio import AsyncLeaderElection, AsyncLeadership, AsyncMember, AsyncPluginLocator, leased
from kip30.driver.clock import ManualClock, SystemClock
from kip30.driver.lease import Lease
from kip30.driver.records import Claim, Entry
from kip30.runtime.term_work import WorkInProgress
from kip30_conformance.polling import time_scale
from tests.unit.clients import PATIENT

from .loops import PATIENCE, faults_of, properties, threads, until

HOUR = 3600


def test_the_block_is_cancelled_when_leadership_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            ended: list[str] = []

            async def lead() -> None:
                async with locator.leader_election("s").lead("a", "") as leadership:
                    faults_of(locator).expire_session()
                    try:
                        await asyncio.sleep(PATIENCE * time_scale())
                    except asyncio.CancelledError:
                        assert not leadership.is_valid()
                        ended.append("cancelled")
                        raise

            with pytest.raises(LeadershipLostError) as lost:
                await lead()
            assert ended == ["cancelled"]
            assert isinstance(lost.value.__cause__, asyncio.CancelledError)
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            await asyncio.sleep(0)

    asyncio.run(main())


def test_a_cancellation_from_elsewhere_stays_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            entered = asyncio.Event()

            async def lead() -> None:
                async with locator.leader_election("s").lead("a", ""):
                    entered.set()
                    await asyncio.sleep(PATIENCE * time_scale())

            task = asyncio.create_task(lead())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await locator.leader_election("s").get_leader() is None

    asyncio.run(main())


def test_of_two_cancellations_the_foreign_one_wins(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            entered = asyncio.Event()

            async def lead() -> None:
                async with locator.leader_election("s").lead("a", "") as leadership:
                    entered.set()
                    with suppress(asyncio.CancelledError):
                        await asyncio.sleep(PATIENCE * time_scale())
                    await leadership.lost.wait()
                    await asyncio.sleep(PATIENCE * time_scale())

            task = asyncio.create_task(lead())
            await entered.wait()
            task.cancel()
            await asyncio.sleep(0)
            faults_of(locator).expire_session()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), PATIENCE * time_scale())

    asyncio.run(main())


def test_an_error_of_the_block_is_not_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:

            async def lead() -> None:
                async with locator.leader_election("s").lead("a", ""):
                    faults_of(locator).expire_session()
                    try:
                        await asyncio.sleep(PATIENCE * time_scale())
                    finally:
                        raise ValueError("of the block")

            with pytest.raises(ValueError, match="of the block"):
                await lead()
            await asyncio.sleep(0)

    asyncio.run(main())


def test_the_clock_alone_cancels_the_block(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with AsyncPluginLocator(properties(tmp_path), clock=clock) as locator:

            async def lead() -> None:
                async with locator.leader_election("s").lead("a", ""):
                    faults_of(locator).renewals_paused = True
                    clock.advance(1.9)
                    await asyncio.sleep(PATIENCE * time_scale())

            with pytest.raises(LeadershipLostError, match="not renewed in time"):
                await lead()
            clock.advance(5)

    asyncio.run(main())


def test_without_any_event_the_deadline_sets_lost(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        lease = Lease(clock, sent_at=clock.now(), timeout_seconds=0.3, margin_seconds=0.1)
        claim = Claim("a", Entry(Version(7), "nonce", b""), lease, 1)
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election = locator.leader_election("s")
            progress = WorkInProgress(clock)
            term = Leadership("s", claim, b"", lambda: None, Future, progress=progress)
            leadership = AsyncLeadership(election._bridge, term)
            assert not leadership.lost.is_set()
            clock.advance(0.25)
            await asyncio.wait_for(leadership.lost.wait(), PATIENCE * time_scale())
            assert lease.end_reason is None
            with pytest.raises(LeadershipLostError):
                leadership.check()

    asyncio.run(main())


def test_callbacks_of_a_candidate_run_in_the_loop_one_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election, seen = locator.leader_election("s"), list[tuple[str, AsyncLeadership]]()
            loop, at_once = asyncio.get_running_loop(), 0

            async def on_elected(term: AsyncLeadership) -> None:
                nonlocal at_once
                at_once += 1
                assert at_once == 1
                assert asyncio.get_running_loop() is loop
                await asyncio.sleep(0.05)
                seen.append(("elected", term))
                at_once -= 1

            def on_lost(term: AsyncLeadership) -> None:
                assert term.lost.is_set()
                seen.append(("lost", term))

            assert await election.nominate("a", "x", on_elected=on_elected, on_lost=on_lost)
            assert await election.nominate("a", "x", on_elected=on_elected)
            with pytest.raises(AlreadyNominatedError):
                await election.nominate("a", "x", on_elected=print)
            first = election.leadership("a")
            assert first is not None
            faults_of(locator).expire_session()
            await until(lambda: len(seen) == 3)
            second = await election.wait_elected("a", PATIENCE * time_scale())
            assert second is not None
            assert second.epoch > first.epoch
            assert [term for name, term in seen if name == "elected"] == [first, second]
            assert [term for name, term in seen if name == "lost"] == [first]

    asyncio.run(main())


def test_a_lost_leadership_shows_it_to_its_callback(tmp_path: Path) -> None:
    """Also if the callback's turn comes before that of the event which says so."""

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election = locator.leader_election("s")
            async with election.lead("a", "", cancel_on_loss=False) as leadership:
                leadership._held.end("tried out")
                assert not leadership.lost.is_set()  # the loop has had no turn yet
                assert election._counterparts.of(leadership._held) is leadership
                assert leadership.lost.is_set()

    asyncio.run(main())


def _cancel_this() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()


async def _cancelled_at_its_end(
    election: AsyncLeaderElection[str], terms: list[AsyncLeadership]
) -> None:
    async with election.lead("a", "") as term:
        terms.append(term)
        _cancel_this()
    await asyncio.sleep(0)  # the end may have found nothing to wait for


def test_lost_is_set_when_a_candidate_has_resigned_and_a_member_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late the event arrives that says so."""
    monkeypatch.setattr(leased, "_end", lambda _: None)

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election, group = locator.leader_election("s"), locator.group_membership("g")
            async with election.lead("a", "") as term:
                pass
            assert term.lost.is_set()
            terms = list[AsyncLeadership]()
            with pytest.raises(asyncio.CancelledError):
                await _cancelled_at_its_end(election, terms)
            assert terms[0].lost.is_set()
            await election.nominate("a", "")
            nominated = await election.wait_elected("a")
            assert nominated is not None
            await election.resign("a")
            assert nominated.lost.is_set()
            member = await group.join("m", "")
            await group.leave("m")
            assert member.lost.is_set()

    asyncio.run(main())


def test_a_block_that_resigns_last_ends_without_a_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the event that says so arrives after the block; one that arrives before cancels it."""
    monkeypatch.setattr(leased, "_end", lambda _: None)

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election = locator.leader_election("s")

            async def lead(then_seconds: float | None) -> None:
                async with election.lead("a", ""):
                    await election.resign("a")
                    if then_seconds is not None:
                        await asyncio.sleep(then_seconds)
                await asyncio.sleep(0)

            await lead(None)
            with pytest.raises(LeadershipLostError):
                await lead(PATIENCE * time_scale())

    asyncio.run(main())


@pytest.mark.parametrize("closed", ["handle", "locator"])
def test_lost_is_set_when_the_handle_or_the_locator_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    """However late the event arrives that says so."""
    monkeypatch.setattr(leased, "_end", lambda _: None)

    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election, group = locator.leader_election("s"), locator.group_membership("g")
            member = await group.join("m", "")
            await election.nominate("a", "")
            term = await election.wait_elected("a")
            assert term is not None
            if closed == "handle":
                await asyncio.gather(election.close(), group.close())
                assert (term.lost.is_set(), member.lost.is_set()) == (True, True)
        assert (term.lost.is_set(), member.lost.is_set()) == (True, True)

    asyncio.run(main())


def test_a_leadership_has_its_epoch_and_deadline_and_is_a_fence(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            AsyncPluginLocator(properties(tmp_path)) as locator,
            locator.leader_election("s").lead("a", "") as leadership,
        ):
            assert (leadership.service, leadership.candidate, leadership.epoch) == ("s", "a", 1)
            assert leadership.timeout_seconds == 2
            assert 0 < leadership.remaining_seconds() <= 2
            assert leadership.deadline > 0
            await locator.storage().put("k", "v", fence=leadership)

    asyncio.run(main())


def test_a_member_learns_that_it_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            group, lost = locator.group_membership("g"), asyncio.Queue[AsyncMember]()
            member = await group.join("m", "1", on_lost=lost.put)
            assert group.member("m") is member
            assert member.id == "m"
            faults_of(locator).expire_session()
            await asyncio.wait_for(member.lost.wait(), PATIENCE * time_scale())
            assert await asyncio.wait_for(lost.get(), PATIENCE * time_scale()) is member
            await until(lambda: group.member("m"))
            again = group.member("m")
            assert again is not None
            assert again.incarnation > member.incarnation

    asyncio.run(main())


def test_a_member_is_evicted_when_another_client_takes_its_id(tmp_path: Path) -> None:
    async def main() -> None:
        with PluginLocator().startup(properties(tmp_path)) as other:
            async with AsyncPluginLocator(properties(tmp_path)) as locator:
                group, evicted = locator.group_membership("g"), asyncio.Queue[AsyncMember]()
                member = await group.join("m", "1", on_evicted=evicted.put)
                with faults_of(locator).cut_off():
                    rival = other.group_membership("g")

                    def has_joined() -> bool:
                        with suppress(Exception):
                            rival.join("m", "2")
                        return rival.member("m") is not None

                    async with asyncio.timeout(PATIENCE * time_scale()):
                        while not await asyncio.to_thread(has_joined):
                            pass
                assert await asyncio.wait_for(evicted.get(), PATIENCE * time_scale()) is member

    asyncio.run(main())


def test_a_wait_to_be_elected_is_counted_by_the_clock_of_leases(tmp_path: Path) -> None:
    """That clock goes on in suspend, and an event loop's does not."""

    async def main() -> None:
        # Behind the holder's clock, also when it has advanced: a lease must not look expired.
        clock = ManualClock(SystemClock().now() - 2 * HOUR)
        async with (
            AsyncPluginLocator(properties(tmp_path)) as holding,
            AsyncPluginLocator(properties(tmp_path), clock=clock) as locator,
            holding.leader_election("s").lead("a", ""),
        ):
            election = locator.leader_election("s")
            await election.nominate("b", "")
            waiting = asyncio.create_task(election.wait_elected("b", HOUR))
            await asyncio.sleep(0)
            clock.advance(HOUR + 1)
            assert await asyncio.wait_for(waiting, PATIENCE * time_scale()) is None

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [-1, float("nan")])
def test_there_is_no_negative_time_to_wait(tmp_path: Path, seconds: float) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election = locator.leader_election("s")
            with pytest.raises(UsageError):
                async with election.lead("a", "", timeout_seconds=seconds):
                    pytest.fail("leads")
            with pytest.raises(UsageError):
                await election.wait_elected("a", seconds)
            assert await election.get_leader() is None

    asyncio.run(main())


def test_without_time_one_attempt_decides(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            first, second = locator.leader_election("s"), locator.leader_election("s")
            async with first.lead("a", "", timeout_seconds=0):
                with pytest.raises(AlreadyNominatedError):
                    async with first.lead("a", ""):
                        pytest.fail("leads twice")
                with pytest.raises(NotElectedError):
                    async with second.lead("b", "", timeout_seconds=0):
                        pytest.fail("two lead at once")
            assert await second.get_leader() is None

    asyncio.run(main())


def test_thousands_wait_and_hold_no_thread(tmp_path: Path) -> None:
    # A thousand terms are a thousand writes to the disk, of which one may take seconds.
    many, patient = 1000, properties(tmp_path) | PATIENT

    async def main(other: PluginLocator) -> None:
        async with AsyncPluginLocator(patient) as locator:
            storage = locator.storage()
            await storage.put("k", "v")
            few = threads().total() + 10

            async def lead(number: int) -> None:
                async with locator.leader_election(f"s{number}").lead("c", ""):
                    pytest.fail("leads")

            async def listen(number: int) -> None:
                async def hear(_: object) -> None:
                    await asyncio.sleep(PATIENCE * time_scale())

                if number % 3 == 0:
                    registry = locator.listener_registry()
                    await registry.add_value_change_listener("k", hear)
                elif number % 3 == 1:
                    await locator.group_membership("g").add_listener(hear)
                else:
                    await locator.leader_election("led").add_listener(hear)

            waiting = [asyncio.create_task(lead(number)) for number in range(many)]
            await asyncio.gather(*(listen(number) for number in range(many)))
            await storage.update("k", "w")
            await locator.group_membership("g").join("m", "")
            led = locator.leader_election("led")
            await led.nominate("a", "")
            assert await led.wait_elected("a", PATIENCE * time_scale())
            await until(lambda: threads().total() <= few)
            await locator.leader_election("s0").get_leader()
            await locator.group_membership("g").membership()
            assert not any(task.done() for task in waiting)
            for task in waiting:
                task.cancel()
            await asyncio.wait_for(
                asyncio.gather(*waiting, return_exceptions=True), PATIENCE * time_scale()
            )
            assert all(task.cancelled() for task in waiting)
            other.leader_election("s0").close()

    before = threads()
    with PluginLocator().startup(patient) as other:
        for number in range(many):
            assert other.leader_election(f"s{number}").nominate("first", "")
        asyncio.run(main(other))
    assert threads() == before


def test_others_lead_when_the_block_of_a_lead_is_left(tmp_path: Path) -> None:
    """A task that is cancelled because its locator is closed may still need a moment."""

    async def main() -> None:
        log: list[str] = []
        locator = await AsyncPluginLocator(properties(tmp_path)).__aenter__()
        election = locator.leader_election("s")
        leads = asyncio.Event()

        async def work() -> None:
            with suppress(LeadershipLostError):
                async with election.lead("a", ""):
                    leads.set()
                    try:
                        await asyncio.sleep(1000)
                    finally:
                        await asyncio.sleep(0.1)
                        log.append("worked")

        working = asyncio.create_task(work())
        await leads.wait()
        async with AsyncPluginLocator(properties(tmp_path)) as other:
            successor = other.leader_election("s")
            await successor.nominate("b", "", on_elected=lambda _: log.append("leads"))
            await locator.close()
            await until(lambda: len(log) == 2)
            assert log == ["worked", "leads"]
            await working

    asyncio.run(main())


def test_others_lead_when_a_coroutine_that_was_called_back_has_ended(tmp_path: Path) -> None:
    async def main() -> None:
        log: list[str] = []
        async with (
            AsyncPluginLocator(properties(tmp_path)) as locator,
            AsyncPluginLocator(properties(tmp_path)) as other,
        ):
            election, successor = (one.leader_election("s") for one in (locator, other))
            leads = asyncio.Event()

            async def work(term: AsyncLeadership) -> None:
                leads.set()
                await term.lost.wait()
                await asyncio.sleep(0.1)
                log.append("worked")

            await election.nominate("a", "", on_elected=work)
            await leads.wait()
            await successor.nominate("b", "", on_elected=lambda _: log.append("leads"))
            await election.resign("a")
            await until(lambda: len(log) == 2)
            assert log == ["worked", "leads"]

    asyncio.run(main())


def test_a_coroutine_that_was_called_back_may_resign(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election = locator.leader_election("s")
            resigned = asyncio.Event()

            async def work(_term: AsyncLeadership) -> None:
                await election.resign("a")
                resigned.set()

            await election.nominate("a", "", on_elected=work)
            await asyncio.wait_for(resigned.wait(), PATIENCE * time_scale())
            assert await election.get_leader() is None

    asyncio.run(main())
