"""Clients that continue their work while something happens to a record beside theirs."""

from collections.abc import Callable
from typing import TypeVar

from kip30 import (
    KeySetChange,
    Kip30Error,
    LeaderChange,
    MembershipChange,
    PluginLocator,
    ValueChange,
)
from kip30.driver import Capability
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually

T = TypeVar("T")

NAMESPACE, GROUP, SERVICE = "n", "g", "s"
_MEMBER, _CANDIDATE = "steady", "lead"
_VALUE = f"{NAMESPACE}/steady"


class Bystanders:
    """One client that listens, is a member and leads; another makes the changes it observes.

    They use the namespace ``n``, the group ``g`` and the service ``s``, in which others may be.

    Attributes:
        members: The events of the listener of the group.
        keys: The events of the listener of the namespace.
        leaders: The events of the listener of the service.
    """

    def __init__(self, client: PluginLocator, other: PluginLocator) -> None:
        """Start; *other* makes each change."""
        self._client, self._other = client, other
        self._crew = other.group_membership(GROUP)
        self._rivals = other.leader_election(f"{SERVICE}2")
        self._round = 0
        self.values = Recorder[ValueChange[str]]()
        self.keys = Recorder[KeySetChange]()
        self.members = Recorder[MembershipChange[str]]()
        self.leaders = Recorder[LeaderChange[str]]()
        other.storage().put(_VALUE, "0")
        self._group = client.group_membership(GROUP)
        self._member = self._group.join(_MEMBER, "")
        self._election = client.leader_election(SERVICE)
        assert self._election.nominate(_CANDIDATE, "")
        self._term = self._election.leadership(_CANDIDATE)
        self._listen()

    def _listen(self) -> None:
        registry = self._client.listener_registry()
        registry.add_value_change_listener(_VALUE, self.values)
        registry.add_key_set_change_listener(NAMESPACE, self.keys)
        self._group.add_listener(self.members)
        self._client.leader_election(f"{SERVICE}2").add_listener(self.leaders)

    def expect_well(self, while_: str) -> None:
        """Require claims to hold, reads to succeed and each listener to receive a new change.

        *while_* names in errors what happens meanwhile.
        """
        self._round += 1
        name = f"k{self._round}"
        self._change(name)
        self._expect_told(name, while_)
        for locator in (self._client, self._other):
            _expect_shown(locator, name, while_)
        assert self._member.is_valid(), f"membership lost: {while_}"
        assert self._term is not None, f"not elected: {while_}"
        assert self._term.is_valid(), f"leadership lost: {while_}"
        self._crew.leave(name)
        self._rivals.resign(name)

    def _change(self, name: str) -> None:
        self._other.storage().update(_VALUE, name)
        self._other.storage().put(f"{NAMESPACE}/{name}", name)
        self._crew.join(name, name)
        self._rivals.nominate(name, name)
        assert self._rivals.wait_elected(name, 10), f"not elected: {name}"

    def _expect_told(self, name: str, while_: str) -> None:
        notified: dict[str, Callable[[], object]] = {
            "value": lambda: any(event.value == name for event in self.values.events),
            "key set": lambda: any(name in _names(event) for event in self.keys.events),
            "group": lambda: any(name in event.joined for event in self.members.events),
            "leader": lambda: any(
                event.leader is not None and event.leader.id == name
                for event in self.leaders.events
            ),
        }
        for kind, is_notified in notified.items():
            eventually(is_notified, what=f"listener of {kind} hears of {name!r}: {while_}")


def _names(event: KeySetChange) -> set[str]:
    return {key.rpartition("/")[2] for key in event.keys}


def _expect_shown(locator: PluginLocator, name: str, while_: str) -> None:
    storage, group = locator.storage(), locator.group_membership(GROUP)
    found = answered(lambda: storage.get(f"{NAMESPACE}/{name}"), while_)
    assert found is not None, f"{name!r} not found: {while_}"
    assert found.value == name
    if lists(locator):
        keys = answered(lambda: set(storage.list(NAMESPACE)), while_)
        assert {_VALUE, f"{NAMESPACE}/{name}"} <= keys, while_
    members = answered(group.membership, while_)
    assert members.items() >= {_MEMBER: "", name: name}.items(), while_
    assert answered(group.membership_list, while_) >= {_MEMBER, name}, while_
    leader = answered(locator.leader_election(SERVICE).get_leader, while_)
    assert leader is not None, f"leader not shown: {while_}"
    assert leader.id == _CANDIDATE, while_


def lists(locator: PluginLocator) -> bool:
    """Return whether the store can list a namespace."""
    return Capability.LISTING in locator.backend.capabilities


def answered(call: Callable[[], T], while_: str) -> T:
    """Return what *call* returns, and require that it does."""
    try:
        return call()
    except Kip30Error as error:
        raise AssertionError(f"not answered: {while_}: {error}") from error
