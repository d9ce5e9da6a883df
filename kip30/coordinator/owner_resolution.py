"""Choice of the owner of an item that several members say they own."""

from collections.abc import Hashable, Iterable
from typing import NamedTuple


class Ownership(NamedTuple):
    """Statement that a member owned items in a generation.

    Attributes:
        member: Any text that names the member.
        generation: The one in which it had them.
        items: The items that it says it owns.
    """

    member: str
    generation: int
    items: Iterable[Hashable]


def owners(ownerships: Iterable[Ownership]) -> dict[Hashable, str]:
    """Return the owner of each item that has one (K48).

    Of several members that say they own an item, the one of the highest generation does: the
    others have missed the generation in which it was given away. Two of the same generation cancel
    each other, because at least one of them is wrong and neither can be believed.
    """
    newest: dict[Hashable, int] = {}
    found: dict[Hashable, str | None] = {}
    for member, generation, items in ownerships:
        for item in items:
            if generation > newest.get(item, generation - 1):
                newest[item], found[item] = generation, member
            elif generation == newest[item] and found[item] != member:
                found[item] = None
    return {item: member for item, member in found.items() if member is not None}
