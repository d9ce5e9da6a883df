"""Lists of items for the members of a group to divide: one that never changes, one in the store."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence

from typing_extensions import override

from kip30.coordinator import CooperativeStickyAssignor, Item
from kip30.coordinator.work_items import ITEMS_TOPIC, name_of_topic, named_topic
from kip30.errors import KeyMissingError, UsageError
from kip30.listeners import ValueChange
from kip30.locator import PluginLocator
from kip30.names import parse_key
from kip30.runner.share_job import check_item
from kip30.runner.waiting import Say


class ItemList(ABC):
    """The items that a group divides.

    Attributes:
        protocol: The name of the protocol: members of a group agree on it, so they divide the same.
        subscription: The topics whose partitions are the items; None for all that there are.
        say: Gets a line for each change of the list, also for one that is ignored.
    """

    protocol: str
    subscription: Collection[str] | None

    def __init__(self) -> None:
        """Say nothing."""
        self.say: Say = lambda _line: None

    @abstractmethod
    def follow(self, locator: PluginLocator, notify: Callable[[], object]) -> None:
        """Call *notify* when the list changes, on any thread, and no other one any longer.

        Raises:
            KeyMissingError: There is no list.
            UsageError: The list cannot be divided.
            UnavailableError: The store did not answer in time. The next call tries again.
        """

    @abstractmethod
    def topics(self) -> Mapping[str, int]:
        """Return how many partitions each topic has now."""

    @abstractmethod
    def text_of(self, item: Item) -> str:
        """Return the text of *item*."""


class FixedItems(ItemList):
    """Items that are known from the start: each process of a group has to have the same."""

    def __init__(self, items: Sequence[str]) -> None:
        """Divide *items*.

        Raises:
            UsageError: They cannot be divided.
        """
        super().__init__()
        self._items = _checked(items)
        text = "".join(f"{item}\n" for item in items)
        digest = _digest(text)
        self.protocol = f"{CooperativeStickyAssignor.name}.{len(items)}-items.{digest}"
        self.subscription = [ITEMS_TOPIC]

    @override
    def follow(self, locator: PluginLocator, notify: Callable[[], object]) -> None:
        """Do nothing: there is no change."""

    @override
    def topics(self) -> Mapping[str, int]:
        return {ITEMS_TOPIC: len(self._items)}

    @override
    def text_of(self, item: Item) -> str:
        return self._items[item.partition]


class StoredItems(ItemList):
    """Items that are the lines of a value in the store, which may change.

    The leader of the group divides the list as it knows it, so members need not agree on one. A
    value that cannot be divided or is not UTF-8 changes nothing, nor does the deletion of the key:
    the last list stays divided.
    """

    def __init__(self, key: str) -> None:
        """Divide the lines of the value of *key*, from `follow` on.

        Raises:
            InvalidNameError: *key* is no key.
        """
        super().__init__()
        self._key = str(parse_key(key))
        self.protocol = f"{CooperativeStickyAssignor.name}.items-key.{_digest(key)}"
        self.subscription = None
        # Replaced as a whole, by the thread that follows and then by callbacks.
        self._items: Sequence[str] = ()
        self._follows = False
        self._notify: Callable[[], object] = lambda: None

    @override
    def follow(self, locator: PluginLocator, notify: Callable[[], object]) -> None:
        self._notify = notify
        if self._follows:
            return
        found = locator.storage().get(self._key)
        if found is None:
            raise KeyMissingError(
                f"there is no list of items in key {self._key!r}"
                f" — `kip30 kv set {self._key} - < FILE` writes one, a line for each item"
            )
        self._items = _checked(lines(found.value))
        # With the present state: it may be another one already.
        locator.listener_registry().add_value_change_listener(
            self._key, self._changed, initial=True
        )
        self._follows = True

    @override
    def topics(self) -> Mapping[str, int]:
        return {named_topic(name): 1 for name in self._items}

    @override
    def text_of(self, item: Item) -> str:
        return name_of_topic(item.topic) or ""

    def _changed(self, change: ValueChange[str]) -> None:
        if change.value is None:
            self.say(f"key {self._key!r} is gone: its last list of items stays divided")
            return
        try:
            items = _checked(lines(change.value))
        except UsageError as error:
            self.say(f"key {self._key!r}: {error}: its last list of items stays divided")
            return
        if items != self._items:
            self.say(f"key {self._key!r} has another list, of {len(items)} items")
            self._items = items
            self._notify()


def lines(text: str) -> list[str]:
    """Return the items in *text*: its lines, without empty ones."""
    return [line for line in text.split("\n") if line]


def _checked(items: Sequence[str]) -> Sequence[str]:
    """Return *items*.

    Raises:
        UsageError: There is no item, one is no line, or one occurs twice and might go to two
            commands.
    """
    if not items:
        raise UsageError("there is nothing to divide: the list of items is empty")
    seen: set[str] = set()
    for item in items:
        if item in seen:
            raise UsageError(f"an item must not be in the list twice: {item!r:.60}")
        check_item(item)
        seen.add(item)
    return items


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
