"""Decoding rows: those of a copy into records, changes and claims.

SQLite stores any type in any column, so a row of another program need not be a record.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kip30.driver.records import Version
from kip30.driver.scanning import Change, Page, Rejected, Row, claim_row

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
    wrong = [
        f"{name} is of the type {type(value).__name__}"
        for name, value, kind in zip(_NAMES, found, _TYPES, strict=True)
        if type(value) is not kind
    ]
    return f"foreign: {', '.join(wrong or ['the key is not UTF-8'])}"


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


def claims_of(members: Iterable[Any], services: Iterable[Any]) -> Iterator[Row]:
    """Yield the claims that the rows of two tables are."""
    for scope, member, data, born, session in members:
        yield claim_row(
            "member",
            scope.decode(),
            member.decode(),
            data=data,
            version=Version(born),
            owner=session,
        )
    for scope, candidate, data, epoch, session in services:
        version = Version(epoch)
        yield claim_row("epoch", scope.decode(), data=None, version=version, owner=None)
        if candidate is not None:
            names = (scope.decode(), candidate.decode())
            yield claim_row("leader", *names, data=data, version=version, owner=session)
