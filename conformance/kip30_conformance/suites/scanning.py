"""Bulk reading: each record of a view once, in spans of any size: G14, P02, P05, P47 and P55."""

import json
import pickle
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from kip30 import BYTES, ClosedError, PluginLocator, Storage, UnsupportedError, UsageError
from kip30.config import Written
from kip30.driver import Capability
from kip30.driver.records import Kind
from kip30.driver.scanning import (
    Change,
    Consistency,
    Layout,
    Position,
    Row,
    ScanDriver,
    Span,
    View,
)
from kip30.errors import PositionLostError
from kip30.runtime.resolution import scanner
from kip30_conformance.harness import Harness
from kip30_conformance.neighbour.base import Spot
from kip30_conformance.process_resources import expect_no_more_than, resources_held
from kip30_conformance.suite import OpenClient, Suite, needing, supported

_AROUND_CUTS = [
    *("a", "a\0", "a\x01", "a b", "a-b", "a.b", "a/b", "a/b/c", "a/b-c", "a/bc", "a0", "ab", "b"),
    *("é", "e\u0301", "n/é", "n/\U0001f511", "n/ÿ", "n/..", "n/=", "n/%2F", "n/=2F", "n/~", "n/ "),
    *("a//b", "n/" + "k" * 255, "k" * 255, "k" * 254 + "j", "d/" * 20 + "k", "z/" * 2 + "\x7f"),
]
_FEW = [f"n/{number:02}" for number in range(14)]
_WHOLE = 1_000_000


class OpenScanner(Protocol):
    """Opens a scanner of the check's own root; it is closed when the check ends."""

    def __call__(self, other_root: str | None = None, **view: object) -> ScanDriver:
        """Open one of *other_root*, or of the check's own, for `View` of *view*."""
        ...


class ScanningTests(Suite):
    """A scan finds every record once, and nothing else."""

    @pytest.fixture
    def blobs(self, client: PluginLocator) -> Storage[bytes]:
        """Return the storage of bytes."""
        return client.storage(BYTES)

    @pytest.fixture
    def any_scanner(
        self, harness: Harness, root: str, timeouts: Mapping[str, Written], tmp_path: Path
    ) -> Iterator[OpenScanner]:
        """Yield a factory of scanners, which share a directory for copies."""
        with ExitStack() as scanners:

            def open_one(other_root: str | None = None, **view: object) -> ScanDriver:
                config = harness.properties(other_root or root, **timeouts)
                of = View(**{"scratch": tmp_path, **view})  # type: ignore[arg-type]
                return scanners.enter_context(scanner(config, of))

            yield open_one

    @pytest.fixture
    def open_scanner(self, client: PluginLocator, any_scanner: OpenScanner) -> OpenScanner:
        """Return the factory; without the power, skip the check (but for `test_G14_scanning`)."""
        if Capability.SCANNING not in client.backend.capabilities:
            pytest.skip(f"store {client.backend.name!r} does not declare scanning")
        return any_scanner

    def test_G14_scanning(self, client: PluginLocator, any_scanner: OpenScanner) -> None:
        """Scanning is kept as declared."""
        client.storage().put("n/k", "v")
        with needing(client, Capability.SCANNING):
            assert [row.key for row in _read(any_scanner())] == [b"n/k"]

    def test_P02_empty_view(self, open_scanner: OpenScanner) -> None:
        """A namespace that was never used is an empty view, and stays unused."""
        for layout in (Layout.KIP30, Layout.CLAIMS):
            assert _read(open_scanner("never-used", layout=layout)) == []
            assert _read(open_scanner("never-used", layout=layout, under="n")) == []

    @pytest.mark.parametrize("rows", [1, 2, 7, _WHOLE])
    def test_P02_keys_around_cuts(
        self, blobs: Storage[bytes], open_scanner: OpenScanner, rows: int
    ) -> None:
        """No key is lost or found twice where one span ends and the next begins."""
        versions = blobs.put_many({key: key.encode() for key in _AROUND_CUTS})
        found = _read(open_scanner(), rows)
        assert Counter(row.key.decode() for row in found) == Counter(_AROUND_CUTS)
        assert {row.key: row.data for row in found} == {row.key: row.key for row in found}
        assert {row.key.decode(): (row.major, row.minor) for row in found} == versions

    @pytest.mark.parametrize("rows", [1, 2, 6, 7, 13, 14, 15])
    def test_P02_multiples_of_a_span(
        self, blobs: Storage[bytes], open_scanner: OpenScanner, rows: int
    ) -> None:
        """Spans that end exactly at the last key neither lose it nor add an empty one twice."""
        blobs.put_many(dict.fromkeys(_FEW, b"v"))
        assert Counter(row.key.decode() for row in _read(open_scanner(), rows)) == Counter(_FEW)

    @pytest.mark.parametrize("rows", [0, -1])
    def test_P02_spans_have_rows(self, open_scanner: OpenScanner, rows: int) -> None:
        """A span of no rows is a usage error, not a plan without an end."""
        store = open_scanner()
        with pytest.raises(UsageError):
            list(store.plan(store.position(), rows))

    @pytest.mark.parametrize(
        ("under", "keys"),
        [
            ("a", ["a//b", "a/b", "a/b/c", "a/b-c", "a/bc"]),
            ("a/b", ["a/b/c"]),
            ("n", [key for key in _AROUND_CUTS if key.startswith("n/")]),
            ("k", []),
        ],
    )
    @pytest.mark.parametrize("rows", [2, _WHOLE])
    def test_P02_part_of_a_store(
        self,
        blobs: Storage[bytes],
        open_scanner: OpenScanner,
        under: str,
        keys: list[str],
        rows: int,
    ) -> None:
        """A view of a namespace has its keys and those of all namespaces below, and no others."""
        blobs.put_many(dict.fromkeys(_AROUND_CUTS, b"v"))
        found = _read(open_scanner(under=under), rows)
        assert Counter(row.key.decode() for row in found) == Counter(keys)

    def test_P02_many_pages(
        self, harness: Harness, open_client: OpenClient, open_scanner: OpenScanner
    ) -> None:
        """A span of many pages has each key once, in one namespace and in many."""
        blobs = open_client(**harness.contended).storage(BYTES)
        keys = [f"n/{number}" for number in range(700)] + [f"n{number}/k" for number in range(300)]
        blobs.put_many(dict.fromkeys(keys, b"v"))
        assert Counter(row.key.decode() for row in _read(open_scanner(), _WHOLE)) == Counter(keys)

    def test_P02_large_values(
        self, client: PluginLocator, blobs: Storage[bytes], open_scanner: OpenScanner
    ) -> None:
        """Empty values and values of the advertised size come back as they were."""
        limit = client.backend.limits.value_bytes
        values = {f"n/{number}": bytes([number]) * limit for number in range(20)} | {"empty": b""}
        for key, value in values.items():
            blobs.put(key, value)
        found = {row.key.decode(): row.data for row in _read(open_scanner(), _WHOLE)}
        assert found == values

    def test_P02_spans_travel(self, blobs: Storage[bytes], open_scanner: OpenScanner) -> None:
        """Another scanner reads a span that went through JSON, and an error through pickle."""
        blobs.put_many(dict.fromkeys(_AROUND_CUTS, b"v"))
        planner = open_scanner()
        at = planner.position()
        sent = json.dumps([b64encode(span.token).decode() for span in planner.plan(at, 3)])
        spans = [Span(b64decode(token), 3) for token in json.loads(sent)]
        reader = open_scanner()
        found = [row.key.decode() for span in spans for row in _scan(reader, span, at)]
        assert Counter(found) == Counter(_AROUND_CUTS)
        with pytest.raises(TypeError):
            pickle.dumps(reader)

    def test_P02_claims_are_apart(
        self, client: PluginLocator, blobs: Storage[bytes], open_scanner: OpenScanner
    ) -> None:
        """Members, leaders and epochs are no values; the view of claims has nothing else."""
        blobs.put("n/k", b"v")
        client.group_membership("a g").join("m/1", "data")
        election = client.leader_election("s")
        election.nominate("c", "leads")
        leadership = election.wait_elected("c", 10)
        assert leadership is not None
        assert [row.key for row in _read(open_scanner())] == [b"n/k"]
        claims = {row.key.decode(): row for row in _read(open_scanner(layout=Layout.CLAIMS))}
        assert set(claims) == {"member/a=20g/m=2F1", "leader/s/c", "epoch/s"}
        assert claims["member/a=20g/m=2F1"].data == b"data"
        assert claims["leader/s/c"].data == b"leads"
        assert claims["leader/s/c"].major == claims["epoch/s"].major == leadership.epoch
        assert claims["leader/s/c"].owner is not None
        assert claims["epoch/s"].data is None

    def test_P05_acknowledged_writes_are_seen(
        self, blobs: Storage[bytes], open_scanner: OpenScanner
    ) -> None:
        """A position is after every write that was acknowledged before, on an open scanner too."""
        store = open_scanner()
        blobs.put("k", b"1")
        assert [row.data for row in _read(store)] == [b"1"]
        blobs.update("k", b"2")
        blobs.put("l", b"3")
        assert sorted(row.data or b"" for row in _read(store)) == [b"2", b"3"]
        blobs.delete("k")
        assert [row.key for row in _read(store)] == [b"l"]

    @pytest.mark.parametrize("rows", [3, _WHOLE])
    def test_P05_writes_meanwhile(
        self, blobs: Storage[bytes], open_scanner: OpenScanner, rows: int
    ) -> None:
        """Keys that stay as they are are right; a point in time shows no later write at all."""
        blobs.put_many(dict.fromkeys(_FEW, b"v"))
        store = open_scanner()
        at = store.position()
        first, *rest = store.plan(at, rows)
        found = _scan(store, first, at)
        blobs.put("n/later", b"v")
        blobs.delete(_FEW[-1])
        blobs.update(_FEW[-2], b"changed")
        found += [row for span in rest for row in _scan(store, span, at)]
        seen = {row.key.decode(): row.data for row in found}
        assert len(seen) == len(found)
        assert {key: seen[key] for key in _FEW[:-2]} == dict.fromkeys(_FEW[:-2], b"v")
        if store.consistency is Consistency.POINT_IN_TIME:
            assert seen == dict.fromkeys(_FEW, b"v")

    def test_P05_moving_records_are_marked(
        self, blobs: Storage[bytes], open_scanner: OpenScanner
    ) -> None:
        """A record that was changed after the position, and shows it, is marked."""
        blobs.put_many(dict.fromkeys(_FEW, b"v"))
        store = open_scanner()
        at = store.position()
        (span,) = store.plan(at, _WHOLE)
        blobs.update(_FEW[3], b"changed")
        marks: dict[bytes | None, bool] = {}
        for page in store.scan(span, at):
            marks |= dict(zip(page.data, store.changed_since(page, at), strict=True))
        if store.consistency is Consistency.POINT_IN_TIME:
            assert marks == {b"v": False}
        else:
            assert marks[b"changed"]

    def test_P06_foreign_position(self, blobs: Storage[bytes], open_scanner: OpenScanner) -> None:
        """A position of another store is refused, and no row is read at it."""
        blobs.put("n/k", b"v")
        store = open_scanner()
        at = store.position()
        (span,) = store.plan(at, _WHOLE)
        with pytest.raises(PositionLostError):
            _scan(store, span, Position("elsewhere", at.at))

    def test_P25_changes(self, blobs: Storage[bytes], open_scanner: OpenScanner) -> None:
        """A log of changes has the last state of each key, in order; without one it is refused."""
        blobs.put_many({"n/kept": b"1", "n/changed": b"1", "n/deleted": b"1"})
        store = open_scanner(under="n")
        before = store.position()
        if store.completeness is None:
            with pytest.raises(UnsupportedError):
                list(store.changes(before, before))
            return
        blobs.update("n/changed", b"2")
        version = blobs.update("n/changed", b"3")
        blobs.delete("n/deleted")
        blobs.put("elsewhere", b"1")
        blobs.put("n/new", b"4")
        after = store.position()
        changes = _changes(store, before, after)
        assert [change.order for change in changes] == sorted(change.order for change in changes)
        last = {change.key: change.row for change in changes}
        assert last.keys() == {b"n/changed", b"n/deleted", b"n/new"}
        assert last[b"n/deleted"] is None
        changed, new = last[b"n/changed"], last[b"n/new"]
        assert changed is not None
        assert new is not None
        assert (changed.data, changed.major, changed.minor) == (b"3", *version)
        assert new.data == b"4"
        assert _changes(store, after, store.position()) == []

    def test_P55_unreadable_records(
        self,
        harness: Harness,
        root: str,
        blobs: Storage[bytes],
        open_scanner: OpenScanner,
    ) -> None:
        """A record that cannot be read is rejected with its key: it is not gone."""
        blobs.put_many(dict.fromkeys(["n/1", "n/2", "n/3"], b"v"))
        before = open_scanner().position()
        with supported(harness.neighbour, root) as neighbour:
            spot = Spot(Kind.VALUE, "n", "2")
            forms = neighbour.unreadable_forms(neighbour.read(spot))
            for meaning, stored in forms.items():
                neighbour.write(spot, stored)
                store = open_scanner()
                records, rejected = _sorted(store)
                # A scan need not look at all parts of a record.
                is_record = b"n/2" in records
                assert records | rejected == {b"n/1", b"n/2", b"n/3"}, meaning
                assert rejected == (set() if is_record else {b"n/2"}), meaning
                if store.completeness is not None:
                    last = _changes(store, before, store.position())[-1]
                    assert (last.key, last.row is not None) == (b"n/2", is_record), meaning
                    assert is_record or _record_in(last) == b"n/2", meaning

    def test_P47_nothing_is_left(self, blobs: Storage[bytes], open_scanner: OpenScanner) -> None:
        """A scanner that is closed, also in the middle of a page, leaves nothing behind."""
        blobs.put_many(dict.fromkeys(_FEW, b"v"))
        before = resources_held()
        store = open_scanner()
        at = store.position()
        for span in store.plan(at, 3):
            pages = store.scan(span, at)
            next(pages)
            break
        store.close()
        store.close()
        expect_no_more_than(before)

    def test_P47_closed(self, blobs: Storage[bytes], open_scanner: OpenScanner) -> None:
        """A closed scanner says so."""
        blobs.put("n/k", b"v")
        store = open_scanner()
        at = store.position()
        (span,) = store.plan(at, _WHOLE)
        store.close()
        calls: list[Callable[[], object]] = [
            store.position,
            lambda: list(store.plan(at, 1)),
            lambda: _scan(store, span, at),
        ]
        for call in calls:
            with pytest.raises(ClosedError):
                call()


def _sorted(store: ScanDriver) -> tuple[set[bytes], set[bytes | None]]:
    """Return the keys of the records of *store*, and of those that could not be read."""
    at = store.position()
    pages = [page for span in store.plan(at, _WHOLE) for page in store.scan(span, at)]
    rejected = {one.record for page in pages for one in page.rejected}
    return {row.key for page in pages for row in page.rows}, rejected


def _record_in(change: Change) -> bytes | None:
    return change.rejected.record if change.rejected is not None else None


def _read(store: ScanDriver, rows: int = 1_000) -> list[Row]:
    """Read the whole view of *store* in spans of *rows* rows; all of it must be readable."""
    at = store.position()
    return [row for span in store.plan(at, rows) for row in _scan(store, span, at)]


def _scan(store: ScanDriver, span: Span, at: Position) -> list[Row]:
    pages = list(store.scan(span, at))
    assert [rejected for page in pages for rejected in page.rejected] == []
    return [row for page in pages for row in page.rows]


def _changes(store: ScanDriver, after: Position, until: Position) -> list[Change]:
    return [change for batch in store.changes(after, until) for change in batch]
