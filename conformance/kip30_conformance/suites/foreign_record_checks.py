"""A record that another program has written, and those beside it, as clients see them."""

import logging
from contextlib import suppress
from typing import Any

import pytest

from kip30 import (
    CodecError,
    LeaderChange,
    MembershipChange,
    PluginLocator,
    StoreError,
    ValueChange,
)
from kip30.driver.records import Kind
from kip30_conformance.clients.bystanders import GROUP, NAMESPACE, SERVICE, answered
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.neighbour.base import Neighbour, Spot
from kip30_conformance.polling import eventually


def sound_record(neighbour: Neighbour, client: PluginLocator, spot: Spot) -> Any:
    """Return the record of kip30 at *spot*; for a leader, the one that is stored there."""
    if spot.kind is not Kind.SERVICE:
        return neighbour.sound(spot, b"data")
    election = client.leader_election(spot.scope)
    assert election.nominate("c", "data")
    # The vendor's client may be connected to a server that lags behind.
    stored = eventually(lambda: neighbour.read(spot), what="the neighbour finds the leader")
    election.resign("c")
    return stored


def expect_unreadable(client: PluginLocator, spot: Spot, how: str) -> None:
    """Require the record at *spot* to be an error, or to be named beside the others."""
    if spot.kind is not Kind.MEMBER:
        with pytest.raises(StoreError):
            pytest.fail(f"{how} is read as {_look(client, spot)!r}")
        return
    group = client.group_membership(spot.scope)
    view = answered(group.membership, how)
    assert spot.name in view.unreadable, how
    assert spot.name not in view, how
    assert spot.name not in group.membership_list(), how


def expect_nothing_worse(client: PluginLocator, spot: Spot, how: str) -> None:
    """Require the record at *spot* to be read somehow, or refused, and the one beside it read."""
    try:
        _look(client, spot)
    except (StoreError, CodecError) as error:
        assert spot.kind is not Kind.MEMBER, f"{how}: {error}"  # noqa: PT017
    assert client.storage().get(f"{NAMESPACE}/steady"), how
    assert f"{NAMESPACE}/steady" in set(client.storage().list(NAMESPACE)), how
    assert "steady" in client.group_membership(GROUP).membership(), how
    assert client.leader_election(SERVICE).get_leader() is not None, how


def _look(client: PluginLocator, spot: Spot) -> object:
    """Return what *client* reads at *spot*."""
    match spot.kind:
        case Kind.VALUE:
            return client.storage().get(f"{spot.scope}/{spot.name}")
        case Kind.MEMBER:
            return client.group_membership(spot.scope).membership()
        case _:
            found = client.leader_election(spot.scope).get_leader()
            return None if found is None else found.data


def look_anyway(client: PluginLocator, spot: Spot) -> None:
    """Read *spot* in every possible way."""
    with suppress(StoreError):
        _look(client, spot)
    if spot.kind is Kind.VALUE:
        list(client.storage().list(spot.scope))
    if spot.kind is Kind.MEMBER:
        client.group_membership(spot.scope).membership_list()


def listen(client: PluginLocator, spot: Spot) -> None:
    """Listen to *spot*, and to its group or namespace."""
    heard = Recorder[object]()
    match spot.kind:
        case Kind.VALUE:
            registry = client.listener_registry()
            registry.add_value_change_listener(f"{spot.scope}/{spot.name}", heard, initial=True)
            registry.add_key_set_change_listener(spot.scope, heard, initial=True)
        case Kind.MEMBER:
            client.group_membership(spot.scope).add_listener(heard, initial=True)
        case _:
            client.leader_election(spot.scope).add_listener(heard, initial=True)


def is_readable(client: PluginLocator, spot: Spot) -> bool:
    """Return whether no unreadable record is left at *spot*, or in its group."""
    found = _look(client, spot)
    if spot.kind is Kind.MEMBER:
        return not client.group_membership(spot.scope).membership().unreadable
    return found is None


def refusal_of_write(client: PluginLocator, kind: Kind, scope: str) -> str | None:
    """Write to *scope*; return the text of the `StoreError` if that is refused."""
    try:
        _write(client, kind, scope)
    except StoreError as error:
        return str(error)
    return None


def refusal_of_claim(client: PluginLocator, spot: Spot) -> str | None:
    """Claim *spot*, a member or a leader; return the text of the `StoreError` if it is refused."""
    try:
        if spot.kind is Kind.MEMBER:
            client.group_membership(spot.scope).join(spot.name, "")
        else:
            client.leader_election(spot.scope).nominate("next", "")
    except StoreError as error:
        return str(error)
    return None


def _write(client: PluginLocator, kind: Kind, scope: str) -> None:
    match kind:
        case Kind.VALUE:
            client.storage().set(f"{scope}/k", "v")
        case Kind.MEMBER:
            client.group_membership(scope).join("m", "")
        case _:
            client.leader_election(scope).nominate("c", "")


def leader_id(client: PluginLocator, service: str) -> str | None:
    """Return the leader of *service*; None if there is none, or if its record cannot be read."""
    try:
        found = client.leader_election(service).get_leader()
    except StoreError:
        return None
    return None if found is None else found.id


def shows_leader(leaders: Recorder[LeaderChange[str]], begin: int, candidate: str) -> bool:
    """Return whether *leaders* was notified, from the event *begin* on, that *candidate* leads."""
    events = leaders.events[begin:]
    return any(event.leader is not None and event.leader.id == candidate for event in events)


def has_value(value: str, event: ValueChange[str]) -> bool:
    """Return whether *event* has *value*."""
    return event.value == value


def has_member(member_id: str, data: str, event: MembershipChange[str]) -> bool:
    """Return whether *event* shows the member with *data*."""
    return event.members.get(member_id) == data


def warnings_of(caplog: pytest.LogCaptureFixture, spot: Spot) -> list[str]:
    """Return the warnings about *spot*."""
    warnings = [one for one in caplog.records if one.levelno >= logging.WARNING]
    texts = [one.getMessage() for one in warnings if one.name.startswith("kip30.")]
    return [text for text in texts if repr(spot.scope) in text]
