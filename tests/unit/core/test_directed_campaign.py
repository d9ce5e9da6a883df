"""Candidates that obey directives, when the store or the program does something in between."""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kip30 import BYTES, AuthenticationError, Leadership, NotElectedError, PluginLocator, UsageError
from kip30.aio import AsyncPluginLocator
from kip30.driver.kit.futures import failed
from kip30.driver.records import Target
from kip30.operations import (
    pause_service,
    read_directives,
    resume_service,
    step_down_leader,
)
from kip30.runtime.campaign import Campaign
from kip30.runtime.directives import (
    NAMESPACE,
    Directives,
    StepDown,
    directives_key,
    encode_directives,
)
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.driver_faults import wrap
from kip30_conformance.polling import eventually, throughout, time_scale

from .conftest import OpenClient
from .loops import properties
from .trouble import faults

pytestmark = pytest.mark.virtual_time

PATIENCE = 10
OBEYS: Mapping[str, Any] = {"plugin.operations": True}


@contextmanager
def unanswered_look(
    client: PluginLocator, answer: Callable[[], Future[Any]] = Future
) -> Generator[threading.Event]:
    """Answer no read of the directives in the block; the event is set by the first."""
    asked, is_over = threading.Event(), threading.Event()

    def snapshot(real: Callable[..., Future[Any]], target: Target) -> Future[Any]:
        if target.scope != NAMESPACE or is_over.is_set():
            return real(target)
        asked.set()
        return answer()

    wrap(client.backend.observe, "snapshot", snapshot)
    yield asked
    is_over.set()


def nominated(client: PluginLocator, elected: Recorder[Leadership]) -> None:
    client.leader_election("s").nominate("a", "", on_elected=elected)


def test_a_resignation_before_the_look_is_answered_gives_the_claim_back(
    open_client: OpenClient,
) -> None:
    client, other, elected = open_client(**OBEYS), open_client(), Recorder[Leadership]()
    election = client.leader_election("s")
    with unanswered_look(client) as asked:
        assert not election.nominate("a", "", on_elected=elected)
        assert asked.is_set()
        assert other.leader_election("s").get_leader() is not None
    election.resign("a")
    assert other.leader_election("s").get_leader() is None
    assert elected.events == []


def test_a_close_before_the_look_is_answered_ends(open_client: OpenClient) -> None:
    client, other, elected = open_client(**OBEYS), open_client(), Recorder[Leadership]()
    with unanswered_look(client) as asked:
        nominated(client, elected)
        assert asked.is_set()
        client.close()
    eventually(lambda: other.leader_election("s").get_leader() is None)
    assert elected.events == []


def test_a_session_that_ends_before_the_look_is_answered_brings_another_claim(
    open_client: OpenClient,
) -> None:
    client, other, elected = open_client(**OBEYS), open_client(), Recorder[Leadership]()
    with unanswered_look(client):
        nominated(client, elected)
        leader = other.leader_election("s").get_leader()
        assert leader is not None
        faults(client).expire_session()
    term = elected.expect_count(1, within=30)[0]
    assert term.epoch > leader.epoch


def test_a_look_that_is_forbidden_is_an_error_of_the_nomination(open_client: OpenClient) -> None:
    client, other = open_client(**OBEYS), open_client()
    refused = AuthenticationError("no permission to read kip30.directives")
    with unanswered_look(client, lambda: failed(refused)):
        with pytest.raises(AuthenticationError, match=r"kip30\.directives"):
            client.leader_election("s").nominate("a", "")
        eventually(lambda: other.leader_election("s").get_leader() is None)
    assert client.leader_election("s").nominate("b", "")


def test_a_step_down_that_was_seen_is_carried_out_although_it_is_withdrawn(
    open_client: OpenClient,
) -> None:
    client, other = open_client(**OBEYS), open_client(**OBEYS)
    election = client.leader_election("s")
    election.nominate("a", "", step_down_seconds=2.0)
    other.leader_election("s").nominate("b", "")
    term = election.leadership("a")
    assert term is not None
    eventually(lambda: len(line(client)) == 1)
    asking = threading.Thread(target=lambda: step_down_leader(other, "s"))
    asking.start()
    assert term.step_down_requested.wait(PATIENCE * time_scale())
    client.storage(BYTES).delete(str(directives_key("s")))
    assert term.is_valid()
    assert term.lost.wait(PATIENCE * time_scale())
    assert "steps down by" in term.ending_reason
    asking.join(60 * time_scale())
    assert not asking.is_alive()


def test_a_step_down_that_is_withdrawn_before_it_is_read_is_not_obeyed(
    open_client: OpenClient,
) -> None:
    """A client that was stopped sees by its watch what was withdrawn meanwhile."""
    client, other = open_client(**OBEYS), open_client()
    key, values = str(directives_key("s")), other.storage(BYTES)

    def snapshot(real: Callable[..., Future[Any]], target: Target) -> Future[Any]:
        if target.scope == NAMESPACE and values.get(key) is not None:
            values.delete(key)
        return real(target)

    election = client.leader_election("s")
    election.nominate("a", "")
    term = election.leadership("a")
    assert term is not None
    wrap(client.backend.observe, "snapshot", snapshot)
    now, nonce = time.time(), term.claim.entry.nonce
    asked = StepDown("x", "op", now, "", 60.0, now + 60, term.epoch, nonce, "a", None, 30.0)
    values.put(key, encode_directives(Directives(1, None, asked)))
    eventually(lambda: values.get(key) is None, what="the client has read it")
    throughout(term.is_valid, seconds=1, what="the term stays valid")
    assert not term.step_down_requested.is_set()


def line(client: PluginLocator) -> list[str]:
    return list(client.group_membership("kip30.candidates/s", BYTES).membership())


def test_a_pause_that_comes_while_a_claim_is_unanswered_holds(open_client: OpenClient) -> None:
    """The claim may have been granted, so it is repeated, found, and given back."""
    client, other, elected = open_client(**OBEYS), open_client(), Recorder[Leadership]()
    faults(client).lose_answers("election.claim", times=None)
    nominated(client, elected)
    pause_service(other, "s")
    faults(client).clear()
    eventually(lambda: other.leader_election("s").get_leader() is None)
    throughout(lambda: elected.events == [], seconds=1)
    resume_service(other, "s")
    elected.expect_count(1)


def test_a_candidate_under_a_pause_is_told_that_it_does_not_lead(open_client: OpenClient) -> None:
    client, other = open_client(**OBEYS), open_client()
    pause_service(other, "s")
    election = client.leader_election("s")
    with pytest.raises(NotElectedError), election.lead("a", "", timeout_seconds=0):
        raise AssertionError
    assert not election.nominate("a", "")
    assert election.wait_elected("a", 0.1) is None


@pytest.mark.parametrize("is_idle", [True, False])
def test_nothing_is_due_for_a_candidate_that_resigned_under_a_pause(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, *, is_idle: bool
) -> None:
    """After such a pause its campaign looked twenty times a second."""
    steps, step = list[Campaign](), Campaign._step

    def noted_step(campaign: Campaign) -> None:
        steps.append(campaign)
        step(campaign)

    monkeypatch.setattr(Campaign, "_step", noted_step)
    client, other = open_client(**OBEYS), open_client()
    pause_service(other, "s", seconds=2.0)
    election = client.leader_election("s")
    assert not election.nominate("a", "")
    election.resign("a")
    eventually(lambda: not read_directives(other, "s").is_paused())
    if not is_idle:
        assert election.nominate("b", "")
    before = len(steps)
    throughout(lambda: len(steps) < before + 20, seconds=5.0)


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
def test_a_time_to_step_down_must_be_finite(client: PluginLocator, seconds: float) -> None:
    with pytest.raises(UsageError, match="step_down_seconds"):
        client.leader_election("s").nominate("a", "", step_down_seconds=seconds)


@pytest.mark.real_time("an event loop")
def test_a_task_is_asked_to_step_down(tmp_path: Path) -> None:
    async def main() -> None:
        config = {**properties(tmp_path), **OBEYS}
        async with AsyncPluginLocator(config) as locator:
            election = locator.leader_election("s")
            with PluginLocator().startup(config) as other:
                async with election.lead("a", "", step_down_seconds=60.0) as leadership:
                    other.leader_election("s").nominate("b", "")
                    await asyncio.to_thread(eventually, lambda: len(line(other)) == 1)
                    asking = asyncio.create_task(asyncio.to_thread(step_down_leader, other, "s"))
                    await asyncio.wait_for(
                        leadership.step_down_requested.wait(), PATIENCE * time_scale()
                    )
                    assert leadership.is_valid()
                assert (await asking).leader == "b"

    asyncio.run(main())
