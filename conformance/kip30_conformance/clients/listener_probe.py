"""All notifications of the listeners of one client, on every kind of target."""

from kip30 import (
    KeySetChange,
    LeaderChange,
    Leadership,
    MembershipChange,
    PluginLocator,
    SessionLost,
    ValueChange,
)
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually


class ListenerProbe:
    """Listens to ``n/k``, to the namespace ``n``, to the group ``g`` and to the service ``s``.

    Attributes:
        sessions: The lost sessions it was notified of.
    """

    def __init__(self, client: PluginLocator) -> None:
        """Listen with *client*."""
        self.sessions = Recorder[SessionLost]()
        self._values = Recorder[ValueChange[str]]()
        self._keys = Recorder[KeySetChange]()
        self._members = Recorder[MembershipChange[str]]()
        self._leaders = Recorder[LeaderChange[str]]()
        registry = client.listener_registry()
        registry.add_value_change_listener("n/k", self._values, initial=True)
        registry.add_key_set_change_listener("n", self._keys, initial=True)
        client.group_membership("g").add_listener(self._members, initial=True)
        client.leader_election("s").add_listener(self._leaders, initial=True)
        client.add_session_listener(self.sessions)

    def expect_value(self, value: ValueChange[str], *, within: float = 10.0) -> None:
        """Wait until this is the last event of ``n/k``."""
        eventually(lambda: self._values.events[-1:] == [value], within=within, what=f"{value}")

    def expect_keys(self, *names: str, within: float = 10.0) -> None:
        """Wait until these are the keys of ``n`` in the last event."""
        eventually(
            lambda: [set(event.keys) for event in self._keys.events[-1:]] == [set(names)],
            within=within,
            what=f"keys {names}",
        )

    def expect_members(self, *names: str, within: float = 10.0) -> None:
        """Wait until these are the members in the last event."""
        eventually(
            lambda: [set(event.members) for event in self._members.events[-1:]] == [set(names)],
            within=within,
            what=f"members {names}",
        )

    def expect_leader(self, term: Leadership, *, within: float = 10.0) -> None:
        """Wait until this is the term of the leader in the last event."""
        eventually(
            lambda: (
                [_told_of(event) for event in self._leaders.events[-1:]]
                == [(term.candidate, term.epoch)]
            ),
            within=within,
            what=f"{term}",
        )


def _told_of(event: LeaderChange[str]) -> tuple[str, int] | None:
    return None if event.leader is None else (event.leader.id, event.leader.epoch)
