"""Writes by the text of a share, on the embedded store: each ends with exactly that share."""

from dataclasses import replace

import pytest

from kip30.coordinator import ShareGuard, storage_of_share
from kip30.coordinator.keys import GroupKeys
from kip30.coordinator.records import STATE
from kip30.errors import FencedInstanceError, IllegalGenerationError
from kip30_conformance.clients.item_coordinator import ItemCoordinator, await_shared
from kip30_conformance.clients.members import MemberFactory
from kip30_conformance.polling import eventually

from .conftest import OpenClient


def guard_of(member: ItemCoordinator, instance: str | None = None) -> ShareGuard:
    return ShareGuard(
        "g",
        instance or member.member_id,
        member.member_id,
        member.since,
        history=member.history,
    )


def test_a_guard_ends_with_the_share_and_not_with_the_membership(
    open_client: OpenClient, members: MemberFactory
) -> None:
    admin = open_client()
    first = members.started(open_client())
    await_shared(first)
    former = guard_of(first)
    storage_of_share(admin, former).put("n", "1")
    await_shared(first, members.started(open_client()))
    assert first.since > former.since
    with pytest.raises(IllegalGenerationError):
        storage_of_share(admin, former).update("n", "2")
    storage_of_share(admin, guard_of(first)).update("n", "3")
    found = storage_of_share(admin, former).get("n")
    assert found is not None
    assert found.value == "3"


def test_a_guard_passes_while_the_share_stays_in_later_generations(
    open_client: OpenClient, members: MemberFactory
) -> None:
    admin = open_client()
    first = members.started(open_client(), count=1, cooperative=True)
    await_shared(first)
    former = guard_of(first)
    generation = first.generation.generation
    members.started(open_client(), count=1, cooperative=True)
    eventually(lambda: first.generation.generation > generation, what="a later generation")
    assert first.since == former.since
    storage_of_share(admin, former).put("n", "1")


def test_the_guard_of_a_replaced_instance_is_refused_by_name(
    open_client: OpenClient, members: MemberFactory
) -> None:
    admin, static = open_client(), {"group_instance_id": "k"}
    old = members.started(open_client(), config=static)
    await_shared(old)
    former = guard_of(old, "k")
    storage_of_share(admin, former).put("n", "1")
    new = members.started(open_client(), config=static)
    await_shared(new)
    assert new.since == former.since
    with pytest.raises(FencedInstanceError):
        storage_of_share(admin, former).update("n", "2")
    present = guard_of(new, "k")
    storage_of_share(admin, present).update("n", "3")
    new.close()
    admin.storage().delete(GroupKeys("g").instance("k"))
    with pytest.raises(IllegalGenerationError, match="lost the instance"):
        storage_of_share(admin, present).update("n", "4")


@pytest.mark.case("V10")
@pytest.mark.case("K73")
def test_a_guard_of_a_lost_history_is_refused(
    open_client: OpenClient, members: MemberFactory
) -> None:
    admin = open_client()
    first = members.started(open_client())
    await_shared(first)
    former = guard_of(first)
    admin.storage().delete(GroupKeys("g").state)
    eventually(lambda: first.history not in {"", former.history}, within=30, what="a new history")
    await_shared(first)
    assert guard_of(first)[:-1] == former[:-1]
    with pytest.raises(IllegalGenerationError):
        storage_of_share(admin, former).put("n", "1")
    storage_of_share(admin, guard_of(first)).put("n", "2")


def test_a_guard_without_a_history_is_one_of_a_state_without_one(
    open_client: OpenClient, members: MemberFactory
) -> None:
    admin = open_client()
    first = members.started(open_client())
    await_shared(first)
    present, former = guard_of(first), guard_of(first)._replace(history="")
    with pytest.raises(IllegalGenerationError):
        storage_of_share(admin, former).put("n", "1")
    states = admin.storage(STATE)
    found = states.get(GroupKeys("g").state)
    assert found is not None
    states.set(GroupKeys("g").state, replace(found.value, history=""))  # as an older kip30 does
    storage_of_share(admin, former).put("n", "1")
    with pytest.raises(IllegalGenerationError):
        storage_of_share(admin, present).put("n", "2")
