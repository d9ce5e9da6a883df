"""Keys for the records of other programs, and records that have none."""

from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kip30.driver.scanning import Rejected, Row
from kip30.errors import InvalidNameError
from kip30.names import MAX_NAME_BYTES, parse_key
from kip30.pipeline.stores.path_mapping import (
    Lifetime,
    Mapping,
    Skipped,
    kind_of,
    parents,
    value_of,
)

_PATHS = st.lists(st.sampled_from(["", "a", "b", "é", ".", "..", "\0", "a-b", " "])).map("/".join)


def _row(path: str | bytes, data: bytes | None = b"v", owner: str | None = None) -> Row:
    key = path.encode() if isinstance(path, str) else path
    return Row(key, data, 1, 0, 1, 1, owner)


def _keys(mapping: Mapping, rows: Iterable[Row]) -> list[str | Skipped | Rejected]:
    """Return the outcome of each row of a tree."""
    there = list(rows)
    above = parents(row.key for row in there)
    return [mapping.key_of(row, has_children=row.key in above) for row in there]


@pytest.mark.parametrize(
    ("under", "into", "path", "key"),
    [
        ("/config", "kafka", "/config/topics/t1", "kafka/topics/t1"),
        ("/config/", "kafka", "/config/topics/t1", "kafka/topics/t1"),
        ("", "kafka", "/config/t1", "kafka/config/t1"),
        ("/", "kafka", "/config/t1", "kafka/config/t1"),
        ("/config", "old/kafka", "/config/é ü", "old/kafka/é ü"),
        ("/config", "", "/config/t1", "t1"),
        ("/config", "k", "/config/=2F", "k/=2F"),
    ],
)
def test_paths_of_a_tree(under: str, into: str, path: str, key: str) -> None:
    assert Mapping(into, under, is_tree=True).key_of(_row(path)) == key


@pytest.mark.parametrize(
    ("under", "path", "key"),
    [
        ("", "config/t1", "k/config/t1"),
        ("", "t1", "k/t1"),
        ("config", "config/t1", "k/t1"),
        ("config/", "config/t1", "k/t1"),
        ("/", "/config/t1", "k/config/t1"),
        ("/config", "/config/t1", "k/t1"),
        ("", "a/../b%2F c\0\n", "k/a/../b%2F c\0\n"),
        ("app:", "app:/t1", "k/t1"),
    ],
)
def test_keys_of_other_stores(under: str, path: str, key: str) -> None:
    assert Mapping("k", under, is_tree=False).key_of(_row(path)) == key


@pytest.mark.parametrize(
    ("under", "path", "reason"),
    [
        ("", b"\xff/t1", "not UTF-8: byte 0xff at 0"),
        ("a", b"a/x\xc3", "not UTF-8: byte 0xc3 at 1"),
        ("", b"a//b", "empty part"),
        ("", b"/a", "empty part"),
        ("", b"a/", "empty part"),
        ("", b"", "empty part"),
        ("a", b"a/", "empty part"),
        ("a", b"a//b", "empty part"),
        ("a/", b"a", "not below 'a/'"),
        ("a", b"a", "not below 'a/'"),
        ("a", b"ab/c", "not below 'a/'"),
        ("", b"n" * 256, "256 bytes after escaping"),
        ("", "é".encode() * 43, "258 bytes after escaping"),
        ("", b"n" * 254 + b"/k", "258 bytes after escaping"),
    ],
)
def test_rejected_for_a_reason(under: str, path: bytes, reason: str) -> None:
    refused = Mapping("k", under, is_tree=False).key_of(_row(path))
    assert isinstance(refused, Rejected)
    assert refused.key == path
    assert reason in refused.reason


def test_a_slash_of_a_namespace_takes_three_bytes() -> None:
    mapping = Mapping("kafka", "/", is_tree=True)
    above, below = "/brokers/topics/", "/partitions/0"
    escaped = len("kafka=2Fbrokers=2Ftopics=2F") + len("=2Fpartitions=2F0")
    topic = "t" * (MAX_NAME_BYTES - escaped)
    assert isinstance(mapping.key_of(_row(f"{above}{topic}{below}/state")), str)
    assert isinstance(mapping.key_of(_row(f"{above}{topic}t{below}/state")), Rejected)
    assert isinstance(mapping.key_of(_row(f"{above}{topic}t{below}")), str)


@pytest.mark.parametrize("data", [None, b"", b"v"])
@pytest.mark.parametrize("is_tree", [True, False])
def test_ephemeral_records_are_skipped(data: bytes | None, *, is_tree: bool) -> None:
    row = _row("/brokers/ids/7", data, owner="0x10000000036ee80")
    assert Mapping("k", "/", is_tree=is_tree).key_of(row) is Skipped.EPHEMERAL
    assert kind_of(row) is Lifetime.EPHEMERAL
    assert kind_of(_row("/brokers/ids")) is Lifetime.PERSISTENT


def test_a_tree_like_that_of_kafka() -> None:
    rows = [
        _row("/", b""),
        _row("/admin", None),
        _row("/admin/delete_topics", None),
        _row("/admin/delete_topics/gone", None),
        _row("/brokers", None),
        _row("/brokers/ids", None),
        _row("/brokers/ids/7", b"{}", owner="0x1"),
        _row("/brokers/topics", b""),
        _row("/brokers/topics/t1", b"{}"),
        _row("/brokers/topics/t1/partitions", None),
        _row("/brokers/topics/t1/partitions/0", None),
        _row("/brokers/topics/t1/partitions/0/state", b"{}"),
        _row("/consumers", None),
        _row("/controller", b"{}", owner="0x1"),
    ]
    found = _keys(Mapping("k", is_tree=True), rows)
    assert [key for key in found if isinstance(key, str)] == [
        "k/admin/delete_topics/gone",
        "k/brokers/topics/t1",
        "k/brokers/topics/t1/partitions/0/state",
        "k/consumers",
    ]
    assert found.count(Skipped.EPHEMERAL) == 2
    assert found.count(Skipped.DIRECTORY) == 8


def test_only_children_make_a_directory() -> None:
    mapping = Mapping("k", is_tree=True)
    for data in (None, b""):
        row = _row("/a", data)
        assert mapping.key_of(row) == "k/a"
        assert mapping.key_of(row, has_children=True) is Skipped.DIRECTORY
        assert value_of(row) == b""
        assert Mapping("k", is_tree=False).key_of(_row("a", data), has_children=True) == "k/a"
    assert mapping.key_of(_row("/a"), has_children=True) == "k/a"
    assert value_of(_row("/a")) == b"v"


@pytest.mark.parametrize("under", ["", "/", "/config"])
def test_the_top_of_a_tree_has_no_key(under: str) -> None:
    mapping = Mapping("k", under, is_tree=True)
    top = under or "/"
    for data in (None, b""):
        assert mapping.key_of(_row(top, data)) is Skipped.DIRECTORY
    assert isinstance(mapping.key_of(_row(top)), Rejected)


def test_parents_are_right_above() -> None:
    paths = [b"/", b"/a-b/c", b"/a/b/c", b"/a0", b"/a/b"]
    assert parents(paths) == {b"/", b"/a-b", b"/a/b", b"/a"}
    assert parents([b"/"]) == set()


@pytest.mark.parametrize("into", ["/k", "k/", "n" * 256, "\ud800"])
def test_an_invalid_namespace_is_refused(into: str) -> None:
    with pytest.raises(InvalidNameError):
        Mapping(into, is_tree=True)


@given(st.sets(_PATHS), st.sampled_from(["", "/", "a", "a/", "/a"]), st.booleans())
@example({"a/b", "a//b", "/a/b", "ab", "a/b/"}, "a", False)  # noqa: FBT003  as drawn
def test_two_paths_are_never_one_key(paths: set[str], under: str, is_tree: bool) -> None:  # noqa: FBT001
    """P46."""
    mapping = Mapping("k/l", under, is_tree=is_tree)
    keys = [key for key in map(mapping.key_of, map(_row, paths)) if isinstance(key, str)]
    assert len(set(keys)) == len(keys)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_key_or_rejected(path: bytes) -> None:
    key = Mapping("k", is_tree=False).key_of(_row(path))
    if isinstance(key, str):
        assert key == f"k/{path.decode()}"
        assert parse_key(key).namespace in {"k", key.rpartition("/")[0]}
    else:
        assert isinstance(key, Rejected)
        assert key.reason
