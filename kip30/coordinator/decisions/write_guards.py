"""Versions that guard a write of the application, and the meaning of a refused write (K34, K69).

A write is guarded by the newest version of the state that the member has seen with its share
unchanged, and by the version at which a static member has taken its instance. So it passes in the
generation of the member and while the next one is formed, and is refused from the commit on that
gives the share away, by the store and in the same operation.
"""

from dataclasses import replace

from kip30.coordinator.decisions.member_facts import StateReading
from kip30.coordinator.decisions.validity import OwnGeneration, is_newest
from kip30.coordinator.keys import GroupKeys
from kip30.coordinator.records import Assignment
from kip30.driver.records import Version
from kip30.errors import FencedInstanceError, IllegalGenerationError


def guards(
    own: OwnGeneration, keys: GroupKeys, instance: str, claim: Version | None
) -> dict[str, Version]:
    """Return the versions that keys must have for a write of *own*.

    *claim* is the version of the key of *instance*; None for a dynamic member.
    """
    found = {keys.state: own.state_version}
    if claim is not None:
        found[keys.instance(instance)] = claim
    return found


def after_refusal(
    own: OwnGeneration,
    reading: StateReading,
    found: Assignment | None,
    *,
    member_id: str,
    is_static: bool,
) -> OwnGeneration:
    """Return *own* with which to retry a refused write.

    Args:
        own: What the member had when it wrote.
        reading: A linearizable reading of the state, sent after the refusal.
        found: The own assignment in the generation that it shows; None if there is none.
        member_id: The member's own.
        is_static: Whether the member has an instance that another process may take.

    Raises:
        FencedInstanceError: Another process has the instance. Nothing was written.
        IllegalGenerationError: The share is no longer the member's. Nothing was written.
    """
    if is_static and reading.holder is None:
        raise IllegalGenerationError("the store has lost the instance of this member")
    if is_static and reading.holder != member_id:
        raise FencedInstanceError("another process has the instance of this member")
    state, version = reading.record, reading.version
    if state is None or version is None or state.generation < own.number:
        raise IllegalGenerationError("the store has lost the state of the group")
    if is_newest(own, state):
        return replace(own, state_version=version)
    if state.generation == own.number or found is None or found.refusal:
        raise IllegalGenerationError(
            f"generation {own.number} is over, and {state.generation} has no share for this member"
        )
    if state.history != own.history:
        raise IllegalGenerationError("the store has lost the state of the group, and has another")
    if found.since != own.assignment.since:
        raise IllegalGenerationError(
            f"generation {own.number} is over: {found.since} has changed the share"
        )
    return replace(own, state_version=version)
