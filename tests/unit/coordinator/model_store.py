"""A store for the models: linearizable, in memory; it forgets members on demand."""

import itertools
from collections.abc import Mapping

from kip30.coordinator import keys
from kip30.coordinator.keys import GroupKeys
from kip30.coordinator.records import (
    MEMBER,
    STATE,
    MemberRecord,
    Part,
    PresentMember,
    StateRecord,
    decoded_part,
)
from kip30.driver.records import Condition, Version

KEYS = GroupKeys("model")


class RefusedError(Exception):
    """The store refuses a write: another version, or no such member."""


class ModelStore:
    """The records of one group."""

    def __init__(self) -> None:
        self._versions = itertools.count(1)
        # Every state that was ever written, for the checks after a run.
        self.history: list[StateRecord] = []
        self.state: StateRecord | None = None
        self.versions: dict[str, Version] = {}
        self.holders: dict[str, str] = {}
        self.members: dict[str, PresentMember] = {}
        self.parts: dict[str, bytes] = {}
        self._decoded: dict[str, Part | None] = {}

    def write_state(self, record: StateRecord, expected: Version | Condition) -> Version:
        found = self.versions.get(KEYS.state)
        if not _holds(expected, found):
            raise RefusedError
        self.state = STATE.decode(STATE.encode(record))
        self.history.append(self.state)
        return self._stamp(KEYS.state)

    def claim_instance(self, instance: str, member_id: str, expected: Version | None) -> Version:
        key = KEYS.instance(instance)
        if self.versions.get(key) != expected:
            raise RefusedError
        self.holders[instance] = member_id
        return self._stamp(key)

    def empty_instance(self, instance: str) -> None:
        self.holders[instance] = ""
        self._stamp(KEYS.instance(instance))

    def lose_instance(self, instance: str) -> None:
        del self.holders[instance], self.versions[KEYS.instance(instance)]

    def join(self, member_id: str, record: MemberRecord) -> PresentMember:
        incarnation = Version(next(self._versions))
        present = PresentMember(member_id, incarnation, _sent(record))
        self.members[member_id] = present
        return present

    def update(
        self, member_id: str, record: MemberRecord, replaced: PresentMember | None = None
    ) -> None:
        """Replace a record; with *replaced*, only that one, as for a request that comes late."""
        present = self.members.get(member_id)
        if present is None or replaced not in {None, present}:
            raise RefusedError
        self.members[member_id] = present._replace(record=_sent(record))

    def put_parts(self, attempt: str, parts: Mapping[int, bytes]) -> None:
        new = {KEYS.part(attempt, number): data for number, data in parts.items()}
        if new.keys() & self.parts.keys():
            raise RefusedError
        self.parts |= new

    def part(self, attempt: str, number: int) -> Part | None:
        key = KEYS.part(attempt, number)
        if key not in self.parts:
            return None
        if key not in self._decoded:
            self._decoded[key] = decoded_part(self.parts[key])
        return self._decoded[key]

    def clean(self, generation: int) -> None:
        for key in [*self.parts]:
            if keys.is_outdated(key.rpartition("/")[2], generation):
                del self.parts[key]

    def _stamp(self, key: str) -> Version:
        self.versions[key] = Version(next(self._versions))
        return self.versions[key]


def _holds(expected: Version | Condition, found: Version | None) -> bool:
    if isinstance(expected, Version):
        return expected == found
    return expected is Condition.ANY or found is None


def _sent(record: MemberRecord) -> MemberRecord:
    return MEMBER.decode(MEMBER.encode(record))
