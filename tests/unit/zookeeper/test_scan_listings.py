"""Listings of the names in a large namespace: their number, and the names of each part."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30 import BYTES
from kip30.driver.scanning import Layout, Position, ScanDriver, Span, View
from kip30.runtime.resolution import scanner
from kip30_backends.zookeeper import scan_reader
from kip30_backends.zookeeper.client.messages import GetChildren
from kip30_backends.zookeeper.scan_reader import Listings, NodeRange, place_of
from kip30_backends.zookeeper.scanning import ZookeeperScanner
from kip30_conformance.servers import Ensemble
from tests.unit.clients import PATIENT, Open

_MANY = [f"n/{number:04}" for number in range(1_500)]


class OpenScanner(Protocol):
    """Opens a scanner of the test's namespace; it is closed when the test ends."""

    def __call__(self, view: View | None = None, /) -> ScanDriver: ...


@pytest.fixture
def open_scanner(ensemble: Ensemble, namespace: str) -> Iterator[OpenScanner]:
    properties = {**PATIENT, **ensemble.settings(), "plugin.namespace": namespace}
    with ExitStack() as scanners:
        yield lambda view=None: scanners.enter_context(scanner(properties, view))


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch, namespace: str) -> Counter[str]:
    """Return how often the children of each node below the namespace are asked for."""
    counts: Counter[str] = Counter()

    def count(path: str, *more: Any) -> GetChildren:
        counts[path.removeprefix(f"/{namespace}/kv")] += 1
        return GetChildren(path, *more)

    monkeypatch.setattr(scan_reader, "GetChildren", count)
    return counts


@pytest.mark.parametrize("layout", [Layout.KIP30, Layout.RAW])
def test_the_spans_of_a_namespace_list_it_once(
    open_client: Open,
    open_scanner: OpenScanner,
    namespace: str,
    listed: Counter[str],
    layout: Layout,
) -> None:
    keys = [*_MANY, "m/k", "o/k"]
    open_client(**PATIENT).storage(BYTES).put_many(dict.fromkeys(keys, b""))
    view = View(layout=layout, under=f"/{namespace}/kv" if layout is Layout.RAW else "")
    store = open_scanner(view)
    at = store.position()
    spans = list(store.plan(at, 50))
    assert len(spans) > 30
    assert listed["/n"] == 1
    for turn, reader in enumerate([store, open_scanner(view)]):  # the other as in another process
        found = _keys(reader, spans, at)
        assert found >= Counter(key.rpartition("/")[2] for key in keys)
        assert listed["/n"] == 1 + turn
    assert sum(listed[path] for path in listed if path.startswith("/n/")) <= len(_MANY)


def test_a_later_position_has_later_names(open_client: Open, open_scanner: OpenScanner) -> None:
    """P05: a listing serves no position that is after it."""
    storage = open_client(**PATIENT).storage(BYTES)
    storage.put_many(dict.fromkeys(_MANY, b""))
    store = open_scanner()
    before = store.position()
    spans = list(store.plan(before, 100))
    assert len(_keys(store, spans, before)) == len(_MANY)
    storage.delete(_MANY[700])
    storage.put("n/0700-new", b"")
    after = store.position()
    found = _keys(store, spans, after)
    assert found == Counter(key[2:] for key in {*_MANY, "n/0700-new"} - {_MANY[700]})
    # A name that is gone is left out, also where it is remembered.
    storage.delete(_MANY[701])
    assert found - _keys(store, spans, after) == Counter([_MANY[701][2:]])


def test_a_closed_scanner_holds_no_names(open_client: Open, open_scanner: OpenScanner) -> None:
    open_client(**PATIENT).storage(BYTES).put_many(dict.fromkeys(_MANY, b""))
    store = open_scanner()
    assert isinstance(store, ZookeeperScanner)
    assert list(store.plan(store.position(), 100))
    assert store._listings._known
    store.close()
    assert not store._listings._known


def test_one_listing_of_each_depth_is_held() -> None:
    names = [f"{number:04}" for number in range(2_000)]
    listings = Listings()
    for path in ("", "/a", "/a/b", "/a/c", "/few"):
        listings.keep(path, names if path != "/few" else names[:10], 7)
    held = [path for path in ("", "/a", "/a/b", "/a/c", "/few") if listings.find(path, 7)]
    assert held == ["", "/a", "/a/c"]
    assert listings.find("/a", 8) is None
    listings.keep("/ab", names, 9)
    assert [path for path in ("", "/a", "/a/c", "/ab") if listings.find(path, 0)] == ["", "/ab"]


_NAMES = st.sampled_from(["a", "a-b", "a0", "ab", "b", "a b", "é"])
_PATHS = st.lists(_NAMES, max_size=3).map(lambda names: "".join(f"/{name}" for name in names))


@given(path=_PATHS, names=st.sets(_NAMES), begin=_PATHS, end=_PATHS | st.none())
def test_a_part_includes_the_names_in_it_and_above_it(
    path: str, names: set[str], begin: str, end: str | None
) -> None:
    part = NodeRange(place_of(begin)) if end is None else NodeRange(place_of(begin), place_of(end))
    expected = [
        name
        for name in sorted(names)
        if f"{begin}/".startswith(f"{path}/{name}/") or _order(f"{path}/{name}") >= _order(begin)
        if end is None or _order(f"{path}/{name}") < _order(end)
    ]
    if end is None or _order(begin) <= _order(end):
        assert part.among(path, sorted(names)) == expected


def _order(path: str) -> list[str]:
    return path.split("/")


def _keys(store: ScanDriver, spans: Sequence[Span], at: Position) -> Counter[str]:
    """Return the last parts of what is in *spans*."""
    pages = (page for span in spans for page in store.scan(span, at))
    return Counter(key.decode().rpartition("/")[2] for page in pages for key in page.keys)
