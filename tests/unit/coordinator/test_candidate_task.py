"""The task of a member's candidacy, and the moments of its decisions, on the embedded store."""

from collections.abc import Callable
from typing import Any

import pytest

from kip30 import PluginLocator
from kip30.coordinator import candidate_task
from kip30.coordinator.decisions import CandidacyFacts, may_stand
from kip30.driver.kit.futures import failed
from kip30.driver.records import Kind
from kip30.errors import AuthenticationError, Kip30Error, StoreError, UnavailableError
from kip30_conformance.clients.item_coordinator import await_shared
from kip30_conformance.clients.members import MemberFactory
from kip30_conformance.polling import eventually, throughout


def test_a_member_that_may_not_lead_rests_while_no_member_leads(
    client: PluginLocator, members: MemberFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided: list[CandidacyFacts] = []

    def decide(facts: CandidacyFacts) -> bool:
        decided.append(facts)
        return may_stand(facts)

    monkeypatch.setattr(candidate_task, "may_stand", decide)
    members.started(client, config={"eligible": False})

    def was_long_without_leader() -> bool:
        since = decided[-1].leaderless_since if decided else None
        return since is not None and client.context.clock.now() > since + 2.1

    eventually(was_long_without_leader, within=30, what="others would stand by now")
    before = len(decided)
    throughout(lambda: len(decided) < before + 50, seconds=1.0)


def refuse_first_claim(
    patch: pytest.MonkeyPatch, client: PluginLocator, error: Kip30Error
) -> list[Kip30Error]:
    driver: Any = client.backend.election
    claim, left = driver.claim, [error]

    def refusing(*arguments: Any, **named: Any) -> Any:
        return failed(left.pop()) if left else claim(*arguments, **named)

    patch.setattr(driver, "claim", refusing)
    return left


def refuse_first_watch(
    patch: pytest.MonkeyPatch, client: PluginLocator, error: Kip30Error
) -> list[Kip30Error]:
    driver: Any = client.backend.observe
    watch, left = driver.watch, [error]

    def refusing(target: Any, sink: Any) -> Any:
        if left and target.kind is Kind.SERVICE:
            raise left.pop()
        return watch(target, sink)

    patch.setattr(driver, "watch", refusing)
    return left


Refusal = Callable[[pytest.MonkeyPatch, PluginLocator, Kip30Error], list[Kip30Error]]


@pytest.mark.parametrize(
    ("refuse", "error"),
    [
        (refuse_first_claim, StoreError("the disk is full")),
        (refuse_first_claim, AuthenticationError("the store of accounts is old")),
        (refuse_first_watch, UnavailableError("the system has no thread to spare")),
    ],
)
def test_a_member_stands_again_after_a_refused_nomination(
    client: PluginLocator,
    members: MemberFactory,
    monkeypatch: pytest.MonkeyPatch,
    refuse: Refusal,
    error: Kip30Error,
) -> None:
    left = refuse(monkeypatch, client, error)
    await_shared(members.started(client))
    assert left == []
