"""What kip30 keeps in its own tables, as records: values, and claims."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from kip30.driver.records import Version
from kip30.driver.scanning import Layout, Page, PageSize, Rejected, Span, View, claim_row
from kip30.driver.scanning import Row as Record
from kip30_backends.cassandra.cuts import cut
from kip30_backends.cassandra.library import Row
from kip30_backends.cassandra.partitions import LEADERS, MEMBERS, RECORDS, Partitions, Run, Table
from kip30_backends.cassandra.scan_calls import ScanCalls

_Convert = Callable[[Sequence[Row]], Page]


class _Kept(NamedTuple):
    partitions: Partitions
    convert: _Convert


class KeptTables:
    """The tables of one view."""

    def __init__(self, calls: ScanCalls, view: View, there: Collection[str]) -> None:
        """Read those of its tables that are *there*.

        Raises:
            StoreError: One is not.
        """
        inside, convert = _inside(view), _converting(view)
        self._kept = {
            table.name: _Kept(Partitions(calls, table, inside), convert[table])
            for table in convert
            if table.name in there
        }

    def newest(self) -> int:
        """Return the greatest version that any write had; 0 if there was none."""
        return max((kept.partitions.newest() for kept in self._kept.values()), default=0)

    def plan(self, rows: int) -> Iterator[Span]:
        """Yield spans of about *rows* rows."""
        for name, kept in self._kept.items():
            for run, count in cut(kept.partitions.tallies(rows), rows):
                yield Span(json.dumps([name, *run]).encode(), count)

    def scan(self, token: bytes) -> Iterator[Page]:
        """Yield what is in the span of *token*."""
        name, *places = json.loads(token)
        if name not in self._kept:
            return
        kept, size = self._kept[name], PageSize()
        for found in kept.partitions.rows(Run.of(*places), lambda: size.rows):
            page = kept.convert(found)
            size.adapt(page)
            if page.keys or page.rejected:
                yield page


def tables_of(view: View) -> Sequence[str]:
    """Return what tables *view* is of."""
    return [table.name for table in _converting(view)]


def _inside(view: View) -> Callable[[str], bool]:
    under = view.under
    if view.layout is Layout.CLAIMS or not under:
        return lambda _: True
    return lambda namespace: namespace == under or namespace.startswith(f"{under}/")


def _converting(view: View) -> Mapping[Table, _Convert]:
    if view.layout is Layout.KIP30:
        return {RECORDS: _values}
    under = view.under.encode()

    def only(claims: Callable[[Row], Iterator[Record]]) -> _Convert:
        def convert(found: Sequence[Row]) -> Page:
            rows = [claim for row in found for claim in claims(row)]
            return Page.of(row for row in rows if row.key.startswith(under))

        return convert

    return {MEMBERS: only(_members), LEADERS: only(_leaders)}


def _values(found: Sequence[Row]) -> Page:
    return _page_of_records(found) or _page_of_any(found)


def _page_of_records(found: Sequence[Row]) -> Page | None:
    """Return the page if all rows are records, as in most pages."""
    names = [one["name"] for one in found]
    versions = [one["version"] for one in found]
    if None in names or None in versions or not _can_be_names(names):
        return None
    places = zip([one["namespace"] for one in found], names, strict=True)
    keys = [(f"{space}/{name}" if space else name).encode() for space, name in places]
    data = [one["data"] or b"" for one in found]
    zeros, nones = (0,) * len(found), (None,) * len(found)
    return Page(keys, data, versions, zeros, nones, versions, nones)


def _can_be_names(names: Sequence[str]) -> bool:
    return "" not in names and "/" not in "".join(names)


def _page_of_any(found: Sequence[Row]) -> Page:
    rows, rejected = list[Record](), list[Rejected]()
    for one in found:
        namespace, name, version = one["namespace"], one["name"], one["version"]
        if name is None:  # the partition has static columns alone
            continue
        key = (f"{namespace}/{name}" if namespace else name).encode()
        if version is None:
            rejected.append(Rejected(key, "the row has no version: kip30 did not write it"))
        elif not name or "/" in name:
            rejected.append(Rejected(key, f"no key has the name {name!r}: kip30 did not write it"))
        else:
            rows.append(Record(key, one["data"] or b"", version, 0, None, version, None))
    return Page.of(rows, rejected)


def _members(row: Row) -> Iterator[Record]:
    if row["version"] is not None:
        names, version = (row["in_group"], row["id"]), Version(row["version"])
        yield claim_row(
            "member", *names, data=row["data"] or b"", version=version, owner=row["nonce"]
        )


def _leaders(row: Row) -> Iterator[Record]:
    if row["epoch"] is None:
        return
    service, version = row["service"], Version(row["epoch"])
    yield claim_row("epoch", service, data=None, version=version, owner=None)
    if row["nonce"] is not None:
        names = (service, row["candidate"])
        yield claim_row(
            "leader", *names, data=row["data"] or b"", version=version, owner=row["nonce"]
        )
