"""The items of a list as partitions, and how shares and guards show them.

An item of a list that never changes is its place there. An item of a list that may change is its
name: places would move with each line that comes or goes.
"""

from kip30.coordinator.assignors import Item

ITEMS_TOPIC = "items"
"""The topic whose partitions are the items of a list, by their place in the list."""

_NAME = "="
"""The first character of the topic of a named item, which is its only partition."""
_LONGEST_NUMBER = 18


def numbered_item(place: int) -> Item:
    """Return the item at *place*, from 0 on, of a list that never changes."""
    return Item(ITEMS_TOPIC, place)


def named_topic(name: str) -> str:
    """Return the topic whose only partition is the item *name*."""
    return _NAME + name


def name_of_topic(topic: str) -> str | None:
    """Return the name of the item that *topic* is for; None if it is not for one."""
    return topic[1:] if topic.startswith(_NAME) else None


def guard_text(item: Item) -> str:
    """Return *item*, which is numbered or named, as a part of a guard."""
    return str(item.partition) if item.topic == ITEMS_TOPIC else item.topic


def parse_item(text: str) -> Item:
    """Return the item that `guard_text` was given.

    Raises:
        ValueError: *text* is not of `guard_text`.
    """
    if text.startswith(_NAME):
        return Item(text, 0)
    return numbered_item(parse_number(text))


def parse_number(text: str) -> int:
    """Return the number *text*, in decimal digits.

    Raises:
        ValueError: It is no such text, or too long to be a place or a generation.
    """
    if text.isascii() and text.isdecimal() and len(text) <= _LONGEST_NUMBER:
        return int(text)
    raise ValueError(f"{text!r:.40} is no number from 0 on")
