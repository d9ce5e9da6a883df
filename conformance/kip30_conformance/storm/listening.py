"""The listeners of a client, and how it records its events."""

from kip30 import (
    GroupMembership,
    KeySetChange,
    LeaderChange,
    LeaderElection,
    ListenerRegistry,
    MembershipChange,
    ValueChange,
)
from kip30_conformance.storm.names import KEY_SET, OBSERVED_KEY
from kip30_conformance.storm.process_journal import ProcessJournal


class Listening:
    """Listeners of a value, a set of keys, a group and a leader, each added once it succeeds."""

    def __init__(
        self,
        journal: ProcessJournal,
        registry: ListenerRegistry[str],
        group: GroupMembership[str],
        election: LeaderElection[str],
    ) -> None:
        """Write events to *journal*."""
        self._journal = journal
        self._missing = [
            lambda: registry.add_value_change_listener(OBSERVED_KEY, self._value, initial=True),
            lambda: registry.add_key_set_change_listener(KEY_SET, self._keys, initial=True),
            lambda: group.add_listener(self._members, initial=True),
            lambda: election.add_listener(self._leader, initial=True),
        ]

    def add_one(self) -> None:
        """Add a listener that is missing; if it fails, it is still missing."""
        if self._missing:
            self._missing[0]()
            del self._missing[0]

    def _value(self, change: ValueChange[str]) -> None:
        version = None if change.version is None else str(change.version)
        self._journal.write("value event", value=change.value, version=version)

    def _keys(self, change: KeySetChange) -> None:
        self._journal.write(
            "keys event",
            now=sorted(change.keys),
            added=sorted(change.added),
            removed=sorted(change.removed),
        )

    def _members(self, change: MembershipChange[str]) -> None:
        self._journal.write(
            "members event",
            now=sorted(change.members),
            added=sorted(change.joined),
            removed=sorted(change.left),
        )

    def _leader(self, change: LeaderChange[str]) -> None:
        leader = change.leader
        seen = None if leader is None else [leader.id, leader.epoch]
        self._journal.write("leader event", leader=seen)
