"""Entries that differ little from earlier ones, without a copy of them.

A watch hands a state over for each change of a group or a namespace, and states do not change
afterwards. Of ten thousand entries each copy takes longer than all the rest of an event.
"""

from collections.abc import Iterator, Mapping
from typing import cast

from typing_extensions import override

from kip30.driver.records import Entry

_FEW = 128
"""How many changes may lie over a dict: beyond them it is copied."""


class Layered(Mapping[str, Entry]):
    """The entries of a dict with few changes, which nothing alters any more."""

    __slots__ = ("_base", "_changes", "_size")

    def __init__(self, base: dict[str, Entry], changes: dict[str, Entry | None], size: int) -> None:
        """Have *size* entries: those of *base*, but for *changes*, where None is for one less."""
        self._base = base
        self._changes = changes
        self._size = size

    @override
    def __getitem__(self, name: str) -> Entry:
        entry = self._changes[name] if name in self._changes else self._base[name]
        if entry is None:
            raise KeyError(name)
        return entry

    @override
    def __contains__(self, name: object) -> bool:
        changes: Mapping[object, Entry | None] = cast(
            "Mapping[object, Entry | None]", self._changes
        )
        return changes[name] is not None if name in changes else name in self._base

    @override
    def __iter__(self) -> Iterator[str]:
        changes = self._changes
        yield from (name for name in self._base if name not in changes)
        yield from (name for name, entry in changes.items() if entry is not None)

    @override
    def __len__(self) -> int:
        return self._size

    def over(self) -> tuple[dict[str, Entry], dict[str, Entry | None]]:
        """Return what it is made of."""
        return self._base, self._changes


def changed(before: Mapping[str, Entry], now: Mapping[str, Entry | None]) -> Mapping[str, Entry]:
    """Return the entries *before*, but for *now*, where None is for none."""
    base, changes = before.over() if isinstance(before, Layered) else (dict(before), {})
    changes = {**changes, **now}
    if len(changes) > _FEW or len(changes) > len(base):
        return _flat(base, changes)
    came = sum(name not in before for name, entry in now.items() if entry is not None)
    went = sum(name in before for name, entry in now.items() if entry is None)
    return Layered(base, changes, len(before) + came - went)


def _flat(base: dict[str, Entry], changes: dict[str, Entry | None]) -> dict[str, Entry]:
    entries = dict(base)
    for name, entry in changes.items():
        if entry is None:
            entries.pop(name, None)
        else:
            entries[name] = entry
    return entries
