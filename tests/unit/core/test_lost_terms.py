"""A session that ends at the worst moment of a step: each interleaving is made by hand.

The task that ends lost terms and members runs beside the one that talks to the store, so either
may find out first, and the other be anywhere.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kip30 import Leadership, Member, PluginLocator
from kip30.aio import AsyncPluginLocator
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually, throughout

from .conftest import OpenClient
from .loops import properties, until
from .trouble import faults, has_arrived

pytestmark = pytest.mark.virtual_time


class Gate:
    """Holds up a call of a method once it is armed."""

    def __init__(self, owner: Any, method: str, *, before: Callable[[], object]) -> None:
        """Call *before* in front of the next call of *method* after `arm`."""
        self._real = getattr(owner, method)
        self._before = before
        self._armed = threading.Event()
        self.passed: threading.Event = threading.Event()
        self.returned: threading.Event = threading.Event()
        setattr(owner, method, self)

    def arm(self) -> None:
        self._armed.set()

    def __call__(self, *arguments: object) -> object:
        if not self._armed.is_set():
            return self._real(*arguments)
        self._armed.clear()
        self._before()
        self.passed.set()
        try:
            return self._real(*arguments)
        finally:
            self.returned.set()


def _give_time(other_task_has_acted: Callable[[], object]) -> None:
    """Let another task run, which must not act now: then there is nothing to wait for."""
    end = time.monotonic() + 0.2
    while time.monotonic() < end and not other_task_has_acted():
        time.sleep(0.005)


def _term_ends_within_a_step(client: PluginLocator, campaign: Any, resumed: float) -> None:
    """End the session after a step has looked for lost terms, and before it tries to lead.

    The task that ends terms gets a thread only *resumed* seconds later.
    """
    held = threading.Event()
    watch_terms = campaign._terms._run
    campaign._terms._run = lambda: (held.wait(10), watch_terms())

    def expire() -> None:
        faults(client).expire_session()
        candidacy = campaign.find("a")
        eventually(lambda: not candidacy.leads())
        threading.Timer(resumed, held.set).start()

    gate = Gate(campaign, "_try_to_lead", before=expire)
    gate.arm()
    campaign._task.wake()
    assert gate.passed.wait(10)


def test_a_claim_does_not_begin_before_the_lost_term_has_ended(open_client: OpenClient) -> None:
    """Otherwise the end of the term changes the nonce, and no task knows the claim any more."""
    client, other = open_client(), open_client().leader_election("s")
    election = client.leader_election("s")
    story = Recorder[tuple[str, int]]()
    election.nominate(
        "a",
        "",
        on_elected=lambda term: story(("elected", term.epoch)),
        on_lost=lambda term: story(("lost", term.epoch)),
    )
    story.expect_count(1)
    for seconds in (2.0, 0.8):  # the first claim is given up, and arrives before the second one
        faults(client).delay("election.claim", seconds)
    _term_ends_within_a_step(client, election._campaign, 0.2)
    again = eventually(lambda: election.leadership("a"), what="the candidate leads again")
    eventually(has_arrived)
    assert ("lost", 1) in story.expect_count(3)
    election.resign("a")
    assert again.epoch > 1
    other.nominate("b", "")
    assert other.wait_elected("b", 10)


def test_on_lost_comes_although_the_next_term_has_begun(client: PluginLocator) -> None:
    election, lost = client.leader_election("s"), Recorder[Leadership]()
    election.nominate("a", "", on_lost=lost)
    first = eventually(lambda: election.leadership("a"))
    _term_ends_within_a_step(client, election._campaign, 0.5)
    assert lost.expect_count(1) == [first]


def test_an_incarnation_is_announced_before_it_is_lost(client: PluginLocator) -> None:
    group, story = client.group_membership("g"), Recorder[tuple[str, Member]]()
    first = group.join(
        "m",
        "",
        on_lost=lambda member: story(("lost", member)),
        on_rejoined=lambda member: story(("rejoined", member)),
    )
    lifecycle: Any = group._lifecycles["m"]

    def lose() -> None:
        lifecycle.member.lease.end("the store ended the session")
        _give_time(lambda: len(story.events) > 1)

    gate = Gate(lifecycle._callbacks, "rejoined", before=lose)
    gate.arm()
    first.lease.end("the store ended the session")
    events = story.expect_count(4)
    kinds, members = zip(*events[:4], strict=True)
    assert kinds == ("lost", "rejoined", "lost", "rejoined")
    assert members[0] is first
    assert members[1] is members[2]


def test_an_update_that_was_acknowledged_for_a_lost_incarnation_is_shown_by_the_next(
    open_client: OpenClient,
) -> None:
    """The claim of the re-join is an earlier one, with older data, that arrives late."""
    client = open_client(**{"plugin.session.timeout.ms": 8000, "plugin.operation.timeout.ms": 5000})
    group, injected = client.group_membership("g"), faults(client)
    joined = Recorder[Member]()
    group.join("m", "v0", on_rejoined=joined)
    lifecycle: Any = group._lifecycles["m"]
    injected.arrive_late("membership.claim", 0.6)
    injected.expire_session()
    joined.expect_count(1)

    def lose() -> None:
        injected.delay("membership.claim", 1.2)
        injected.expire_session()
        eventually(lambda: lifecycle._phases.phase.name == "LOST")

    gate = Gate(lifecycle._phases, "acknowledge", before=lose)
    gate.arm()
    group.update("m", "v1")
    joined.expect_count(2)
    eventually(has_arrived)
    eventually(lambda: group.membership().get("m") == "v1", what="the newest data")


@pytest.mark.real_time("an event loop waits in the selector of the system")
def test_a_join_that_is_given_up_before_it_claims_claims_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            group = locator.group_membership("g")
            assert locator._bridge is not None
            connection = locator._bridge.store
            begun, go = threading.Event(), threading.Event()

            def hold() -> None:
                begun.set()
                go.wait(10)

            gate = Gate(connection, "register", before=hold)
            gate.arm()
            joining = asyncio.create_task(group.join("m", "given up"))
            await asyncio.to_thread(begun.wait, 10)
            lifecycle: Any = group._handle._lifecycles["m"]
            joining.cancel()
            with pytest.raises(asyncio.CancelledError):
                await joining
            await until(lambda: lifecycle._task.closed, "nothing was found to withdraw")
            go.set()
            await asyncio.to_thread(gate.returned.wait, 10)
            assert (await group.join("m", "again")).is_valid()
            assert (await group.membership())["m"] == "again"
            await group.leave("m")
            # The join that was given up drops itself again, a moment after its `register`.
            await until(lambda: not connection._active_claims, "nothing is kept")
            await asyncio.to_thread(throughout, lambda: not connection._active_claims, seconds=0.2)

    asyncio.run(main())
