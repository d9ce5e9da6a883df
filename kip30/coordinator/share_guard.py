"""Writes for a share by a process that is not a member, but knows whose share it works on.

`kip30 coordinate` gives its command ``KIP30_GUARD``, and `kip30 kv --guard` writes with that. With
`--each` it is a guard of one item: other items of the same member may come and go.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar, overload

from typing_extensions import override

from kip30.codecs import STR, Codec
from kip30.coordinator.assignors import Item
from kip30.coordinator.guarded_storage import GuardedStorage, check_guards
from kip30.coordinator.item_texts import decode, items_in
from kip30.coordinator.keys import GroupKeys
from kip30.coordinator.records import STATE, Assignment, StateRecord
from kip30.coordinator.store_requests import read_assignments
from kip30.coordinator.work_items import guard_text, parse_item, parse_number
from kip30.errors import (
    CodecError,
    FencedInstanceError,
    IllegalGenerationError,
    InvalidNameError,
    UsageError,
)
from kip30.locator import PluginLocator
from kip30.names import check_id, escape, unescape
from kip30.storage import Guards

T = TypeVar("T")

_PARTS = 4
_PARTS_OF_ITEM = 5


class ShareGuard(NamedTuple):
    """Share, or item, that a write is for.

    Attributes:
        group: The group.
        key: The instance id of a static member, else the member id.
        member: The member id.
        since: The generation that gave the share, as `AbstractCoordinator.since`. With an item,
            that of the share with which the member got the item.
        item: The item that the write is for, of a list; None if it is for the whole share.
        history: In which history of the group, as `AbstractCoordinator.history`: *since* counts in
            that. An empty one, as in the guard of an older kip30, is only that of a group whose
            state has none either.
    """

    group: str
    key: str
    member: str
    since: int
    item: Item | None = None
    history: str = ""

    @property
    def is_static(self) -> bool:
        """True if the member has an instance that another process may take."""
        return self.key != self.member

    @override
    def __str__(self) -> str:
        """Return the text that `parse_guard` reads."""
        item = () if self.item is None else (guard_text(self.item),)
        return text_of_guard(
            self.group, self.key, self.member, self.since, *item, history=self.history
        )


def text_of_guard(group: str, key: str, member: str, since: int, *item: str, history: str) -> str:
    """Return the text of a guard with these fields: escaped, with colons between.

    *item* is the `guard_text` of its item, if it has one.
    """
    moment = f"{since}.{history}" if history else str(since)
    return ":".join(map(escape, (group, key, member, moment, *item)))


def parse_guard(text: str) -> ShareGuard:
    """Return the guard that *text*, the content of ``KIP30_GUARD``, stands for.

    Raises:
        UsageError: It is no such text.
    """
    try:
        parts = [unescape(part) for part in text.split(":")]
        if len(parts) in {_PARTS, _PARTS_OF_ITEM}:
            group, key, member, moment = parts[:_PARTS]
            GroupKeys(group).instance(check_id(key, "key"))
            since, _, history = moment.partition(".")
            item = next(map(parse_item, parts[_PARTS:]), None)
            check_id(member, "member")
            return ShareGuard(group, key, member, parse_number(since), item, history)
    except (InvalidNameError, ValueError):
        pass
    raise UsageError(f"{text!r:.80} is not a guard: pass the value of KIP30_GUARD")


def _still_has(guard: ShareGuard, found: Assignment) -> bool:
    if guard.item is None:
        return found.since == guard.since
    # The bytes of the share change with each of its items, and `since` with them.
    return found.since >= guard.since and guard.item in _items(found.share)


def _items(share: bytes) -> list[Item]:
    """Return the items of *share*; none if it is that of a group that divides no items."""
    try:
        return items_in(decode(share).get("items", {}))
    except CodecError:
        return []


@overload
def storage_of_share(locator: PluginLocator, guard: ShareGuard) -> GuardedStorage[str]: ...
@overload
def storage_of_share(
    locator: PluginLocator, guard: ShareGuard, codec: Codec[T]
) -> GuardedStorage[T]: ...
def storage_of_share(
    locator: PluginLocator, guard: ShareGuard, codec: Codec[Any] = STR
) -> GuardedStorage[Any]:
    """Return the data of the group, written only while the share of *guard* stays as it was.

    If *guard* is that of an item, while the member has it: other items that the member gets or
    gives up do not matter. A member that gives the item up and gets it back passes again.

    Writes are refused as those of `AbstractCoordinator.storage` are, at the cost of a reading of
    the state before each. Nothing is sent before the first one.

    Raises:
        UnsupportedError: The store has no ``guards``.
    """
    check_guards(locator.backend)
    keys = GroupKeys(guard.group)
    context = locator.context
    return GuardedStorage(
        locator.storage(codec),
        keys,
        _ShareReadings(locator, keys, guard).attempts,
        clock=context.clock,
        patience=context.operation_timeout_seconds,
    )


class _ShareReadings:
    def __init__(self, locator: PluginLocator, keys: GroupKeys, guard: ShareGuard) -> None:
        self._locator = locator
        self._keys = keys
        self._guard = guard
        self._states = locator.storage(STATE)
        self._texts = locator.storage(STR)

    def attempts(self) -> Iterator[Guards]:
        """Yield guards by a reading of the state for each attempt.

        Raises:
            IllegalGenerationError: The share has ended. Nothing was written.
            FencedInstanceError: Another process has the instance. Nothing was written.
        """
        while True:
            found = self._states.get(self._keys.state)
            if found is None or not self._is_held(found.value):
                guard = self._guard
                what = "share" if guard.item is None else f"item {guard_text(guard.item)}"
                raise IllegalGenerationError(
                    f"the {what} of {guard.member!r} in group {guard.group!r} is over"
                )
            # Read the instance after the state: a member that has lost it never gets it back.
            yield {self._keys.state: found.version, **self._instance()}

    def _assignment(self, state: StateRecord) -> Assignment | None:
        return read_assignments(self._locator, self._keys, state).get(self._guard.key)

    def _is_held(self, state: StateRecord) -> bool:
        guard = self._guard
        if state.history != guard.history:
            return False
        found = self._assignment(state)
        return (
            found is not None
            and not found.refusal
            and (guard.is_static or found.member_id == guard.member)
            and _still_has(guard, found)
        )

    def _instance(self) -> Guards:
        if not self._guard.is_static:
            return {}
        key = self._keys.instance(self._guard.key)
        held = self._texts.get(key)
        if held is None:
            raise IllegalGenerationError("the store has lost the instance of this member")
        if held.value != self._guard.member:
            raise FencedInstanceError("another process has the instance of this member")
        return {key: held.version}
