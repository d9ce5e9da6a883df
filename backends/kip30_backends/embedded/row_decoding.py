"""Decoding rows: those of a copy into records, changes and claims.

SQLite stores any type in any column, so a row of another program need not be a record.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kip30.driver.records import Version
from kip30.driver.scanning import Change, Page, Rejected, Row, claim_row, hidden_leaders

_NAMES, _TYPES = ("the key", "its data", "its revision"), [bytes, bytes, int]

Found = tuple[Any, Any, Any]
"""The columns key, data and revision of a row."""


def page_of(found: Sequence[Found]) -> Page | None:
    """Return *found* as a page; None if there is nothing."""
    if not found:
        return None
    # Not by ``zip(*found)``, which makes an object more for each row.
    keys = [row[0] for row in found]
    data = [row[1] for row in found]
    revs = [row[2] for row in found]
    if not _are_sound(keys, data, revs):
        return _page_of_any(found)
    zeros, nones = (0,) * len(found), (None,) * len(found)
    return Page(keys, data, revs, zeros, nones, revs, nones)


def _are_sound(*columns: Sequence[Any]) -> bool:
    """Return whether all rows, by their columns, are records, as in nearly all pages."""
    if [set(map(type, column)) for column in columns] != [{kind} for kind in _TYPES]:
        return False
    try:
        b"\0".join(columns[0]).decode()
    except UnicodeDecodeError:
        return False
    return True


def _page_of_any(found: Sequence[Found]) -> Page:
    rows, rejected = list[Row](), list[Rejected]()
    for key, data, rev in found:
        if fault := _fault_of((key, data, rev)):
            rejected.append(_rejected(key, fault))
        else:
            rows.append(Row(key, data, rev, 0, None, rev, None))
    return Page.of(rows, rejected)


def _fault_of(found: Found) -> str:
    """Return the fault of a row; empty: none."""
    if _are_sound(*((value,) for value in found)):
        return ""
    try:
        _sound(dict(zip(_NAMES, _TYPES, strict=True)), found)
    except ValueError as error:
        return str(error)
    return "foreign: the key is not UTF-8"


def _rejected(key: Any, fault: str) -> Rejected:
    if isinstance(key, bytes):
        return Rejected(key, fault, key)
    return Rejected(str(key).encode(errors="backslashreplace"), fault)


def change_of(order: int, namespace: bytes, name: bytes, data: Any, rev: Any) -> Change:
    """Return the change of a name: to a record, something else, or nothing if *rev* is None."""
    key = b"%b/%b" % (namespace, name) if namespace else name
    if rev is None:
        return Change(key, None, order)
    if fault := _fault_of((key, data, rev)):
        return Change(key, None, order, _rejected(key, fault))
    return Change(key, Row(key, data, rev, 0, None, rev, None), order)


_MEMBER = {"scope": bytes, "id": bytes, "data": bytes, "born": int, "session": str}
_SERVICE = {"scope": bytes, "epoch": int}
_LEADER = {"candidate": bytes, "data": bytes, "session": str}


def claims_of(members: Iterable[Sequence[Any]], services: Iterable[Sequence[Any]]) -> Page:
    """Return the claims that the rows of two tables are."""
    rows, rejected = list[Row](), list[Rejected]()
    for found in members:
        try:
            rows.append(_member(*_sound(_MEMBER, found)))
        except ValueError as error:
            rejected.append(Rejected(_place("member", *found[:2]), str(error)))
    for scope, candidate, data, epoch, session in services:
        try:
            rows += _leader(*_sound(_SERVICE, (scope, epoch)), candidate, data, session)
        except ValueError as error:
            # None: the service is vacant, and only its epoch cannot be read.
            hidden = None if candidate is None else _leaders_of(scope)
            rejected.append(Rejected(_place("service", scope), str(error), prefix=hidden))
    return Page.of(rows, rejected)


def _member(scope: bytes, member: bytes, data: bytes, born: int, session: str) -> Row:
    names = (scope.decode(), member.decode())
    return claim_row("member", *names, data=data, version=Version(born), owner=session)


def _leader(scope: bytes, epoch: int, *seat: Any) -> Iterator[Row]:
    version = Version(epoch)
    yield claim_row("epoch", scope.decode(), data=None, version=version, owner=None)
    if seat[0] is not None:
        candidate, data, session = _sound(_LEADER, seat)
        names = (scope.decode(), candidate.decode())
        yield claim_row("leader", *names, data=data, version=version, owner=session)


def _leaders_of(scope: Any) -> bytes | None:
    try:
        return hidden_leaders(scope.decode())
    except (AttributeError, ValueError):  # it is the name of no service
        return None


def _sound(kinds: Mapping[str, type], found: Sequence[Any]) -> Sequence[Any]:
    """Return the columns *found*.

    Raises:
        ValueError: One has another type, so kip30 did not write it.
    """
    wrong = [
        f"{name} is of the type {type(value).__name__}"
        for (name, kind), value in zip(kinds.items(), found, strict=True)
        if type(value) is not kind
    ]
    if wrong:
        raise ValueError(f"foreign: {', '.join(wrong)}")
    return found


def _place(*parts: object) -> bytes:
    shown = [
        part.decode(errors="backslashreplace") if isinstance(part, bytes) else str(part)
        for part in parts
    ]
    return "/".join(shown).encode(errors="backslashreplace")
