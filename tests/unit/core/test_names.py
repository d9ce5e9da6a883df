from enum import Enum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.errors import InvalidNameError
from kip30.names import (
    MAX_NAME_BYTES,
    Key,
    begin_of_keys,
    check_id,
    check_namespace,
    escape,
    keys_at,
    keys_in,
    parse_key,
    unescape,
    unescape_all,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(texts)
def test_escaping_round_trips(text: str) -> None:
    assert unescape(escape(text)) == text


@given(texts, texts)
def test_escaping_is_injective_also_without_case(one: str, other: str) -> None:
    assert (escape(one) == escape(other)) == (one == other)


@given(texts)
def test_an_escaped_name_is_one_safe_path_segment(text: str) -> None:
    segment = escape(text)
    assert segment.isascii()
    assert not set(segment) & set("/%\\ \0?#")
    assert ".." not in segment
    assert not segment.startswith(".")


@pytest.mark.parametrize("segment", ["", "a=", "a=2", "=zz", "a/b", "=41", "=2e", "=FF"])
def test_an_invalid_escaped_segment_is_refused(segment: str) -> None:
    with pytest.raises(InvalidNameError):
        unescape(segment)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a", Key("", "a")),
        ("a/b", Key("a", "b")),
        ("a/b/c", Key("a/b", "c")),
        ("a//b", Key("a/", "b")),
        ("../x", Key("..", "x")),
        (" ", Key("", " ")),
    ],
)
def test_a_key_is_split_at_its_last_slash(text: str, key: Key) -> None:
    assert parse_key(text) == key
    assert str(key) == text


@pytest.mark.parametrize("text", ["", "/", "a/", "/a", "a\ud800", "x" * (MAX_NAME_BYTES + 1)])
def test_an_invalid_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError):
        parse_key(text)


@pytest.mark.parametrize("value", [None, 3, b"a", ["a"], {"a": 1}])
def test_another_type_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidNameError, match="must be a str"):
        parse_key(value)


class Name(str, Enum):  # noqa: UP042  f-strings show no value of such a one
    GROUP = "a-group"
    KEY = "space/a-key"


def test_a_member_of_an_enum_is_its_text_whatever_was_named_before() -> None:
    for _ in range(2):
        assert f"{check_id(Name.GROUP, 'group')}" == "a-group"
        assert f"{check_id('a-group', 'group')}" == "a-group"
        assert f"{check_namespace(Name.GROUP)}" == "a-group"
        assert f"{parse_key(Name.KEY)}" == "space/a-key"
        assert f"{parse_key(Name.GROUP)}" == "a-group"
        assert f"{escape(Name.GROUP)}" == "a-group"


def test_the_limit_counts_escaped_bytes() -> None:
    assert check_id("é" * 42, "group") == "é" * 42
    with pytest.raises(InvalidNameError, match="258 bytes"):
        check_id("é" * 43, "group")


def test_the_root_namespace_is_the_empty_string() -> None:
    assert check_namespace("") == ""
    assert check_namespace("a/b") == "a/b"
    with pytest.raises(InvalidNameError):
        check_namespace("/a")


@pytest.mark.parametrize("text", ["a/", "a//", "/"])
def test_a_namespace_is_named_without_a_slash_at_its_end(text: str) -> None:
    with pytest.raises(InvalidNameError, match="leave the trailing slash out"):
        check_namespace(text)


ROOT = b"/mine/kv/"
LITERAL = st.text("aZ09_-.", min_size=1).filter(lambda name: escape(name) == name)
ANY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def path_of(namespace: str, name: str) -> bytes:
    return ROOT + f"{escape(namespace)}/{escape(name)}".encode()


@given(st.lists(st.tuples(ANY.filter(lambda text: "/" not in text) | st.just(""), LITERAL)))
def test_keys_of_many_paths(places: list[tuple[str, str]]) -> None:
    paths = sorted(path_of(*place) for place in places)
    keys = [f"{namespace}/{name}" if namespace else name for namespace, name in places]
    found = keys_at(paths, ROOT)
    assert found is not None
    assert sorted(found) == sorted(key.encode() for key in keys)
    assert [path_of(*parse_key(key.decode())) for key in found] == paths


@given(st.lists(ANY, min_size=1), st.text(st.characters(codec="ascii")) | ANY)
def test_keys_of_many_paths_are_right_or_none(names: list[str], other: str) -> None:
    paths = sorted([*(path_of("n", name) for name in names), ROOT + b"n/" + other.encode()])
    found = keys_at(paths, ROOT)
    if found is not None:
        assert [path_of(*parse_key(key.decode())) for key in found] == paths


@pytest.mark.parametrize(
    "path",
    [
        ROOT + b"n/",
        ROOT + b"n/.a",
        ROOT + b"n/a..b",
        ROOT + b"n/a=2Eb",
        ROOT + b"n/a b",
        ROOT + b"n/\xff",
        ROOT + b"n/a/b",
        ROOT + b"=2Fa/b",
        ROOT + b"a/b/c",
        ROOT + b"n/" + b"k" * (MAX_NAME_BYTES + 1),
        b"/mine/group/g",
        b"/mine/kv",
    ],
)
def test_paths_that_are_to_be_read_by_themselves(path: bytes) -> None:
    good = [ROOT + b"n/good", ROOT + b"n/last"]
    assert keys_at(sorted([*good, path]), ROOT) is None
    assert keys_at([path], ROOT) is None


@pytest.mark.parametrize("more", [[], ["=C3=A9"], ["a.b"], ["="], ["a=2Fb", "Z_-9"]])
def test_many_names_are_unescaped_together(more: list[str]) -> None:
    segments = ["b", "a-1", *more]
    assert unescape_all(segments) == [unescape(one) for one in segments]
    assert unescape_all(more) == [unescape(one) for one in more]


@pytest.mark.parametrize("segment", ["", "a b", "=2f", "..", "é", "a=2Db"])
def test_none_of_many_names_may_be_no_escaped_one(segment: str) -> None:
    for segments in ([segment], ["a", segment], [segment, "a"], ["a", segment, "=2F"]):
        with pytest.raises(InvalidNameError):
            unescape_all(segments)


@pytest.mark.parametrize("namespace", ["", "n", "n/m", "n//m"])
def test_the_keys_of_a_namespace(namespace: str) -> None:
    names = ["a", "b.c", "é"]
    assert list(keys_in(namespace, names)) == [str(Key(namespace, one)) for one in names]


def test_paths_out_of_order_and_no_paths() -> None:
    assert keys_at([ROOT + b"n/b", ROOT + b"n/a"], ROOT) is None
    assert keys_at([], ROOT) == []


@pytest.mark.parametrize("parent", [b"/mine/kv", b"/mine/kv/=2Fa", b"/mine/kv/a/b", b"/other/kv/a"])
def test_a_path_that_is_no_namespace_is_refused(parent: bytes) -> None:
    with pytest.raises(InvalidNameError):
        begin_of_keys(ROOT, parent)
