"""The engine on the embedded store: a share that is larger than a value of the store."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kip30.coordinator import describe_group
from kip30_conformance.clients.item_coordinator import (
    ItemCoordinator,
    await_generation,
    await_shared,
)
from kip30_conformance.clients.members import MemberFactory
from kip30_conformance.polling import eventually, time_scale

from .conftest import OpenClient


def oversized(one: ItemCoordinator, member_id: str, size: int) -> Callable[..., Any]:
    """Return the method `perform_assignment` of *one*, with *size* more bytes for one member."""
    perform_assignment = one.perform_assignment

    def perform(*arguments: Any) -> Mapping[str, bytes]:
        shares = perform_assignment(*arguments)
        return {**shares, member_id: shares[member_id] + b" " * size}

    return perform


@pytest.mark.case("K07")
@pytest.mark.case("K64")
def test_a_share_that_is_too_large_fails_its_attempt_and_nothing_else(
    open_client: OpenClient,
    members: MemberFactory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client, config = open_client(), {"rebalance_timeout_seconds": 20.0 * time_scale()}
    first = members.started(client, cooperative=True, config=config)
    await_shared(first)
    second = members.started(open_client(), cooperative=True, config=config)
    await_shared(first, second)
    number, held = second.generation.generation, (first.held, second.held)
    await_generation(first, number)
    first.storage().put("k", "kept")
    size = client.backend.limits.value_bytes
    monkeypatch.setattr(first, "perform_assignment", oversized(first, second.member_id, size))
    first.request_rejoin("another round")
    eventually(lambda: second.is_leader, within=20, what="another leads, whose shares fit")
    for one in (first, second):
        await_generation(one, number + 1)
    await_shared(first, second)
    resigned = [one.getMessage() for one in caplog.records if "resigns" in one.getMessage()]
    assert len(resigned) == 1
    assert f"{first.member_id} resigns: the share of member {second.member_id!r} has" in resigned[0]
    # The failed attempt has published nothing, and the members have kept what they had.
    assert [one.generations()[-1] for one in (first, second)] == [number + 1] * 2
    assert (first.held, second.held) == held
    assert "on_lost" not in [*first.names(), *second.names()]
    assert [*client.storage().list("kip30.assignment/g")] == []
    kept = second.storage().get("k")
    assert kept is not None
    assert kept.value == "kept"
    found = describe_group(client, "g")
    assert found is not None
    assert (found.generation, found.leader) == (number + 1, second.member_id)
