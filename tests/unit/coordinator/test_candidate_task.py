"""The task of a member's candidacy, and the moments of its decisions, on the embedded store."""

import pytest

from kip30 import PluginLocator
from kip30.coordinator import candidate_task
from kip30.coordinator.decisions import CandidacyFacts, may_stand
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
