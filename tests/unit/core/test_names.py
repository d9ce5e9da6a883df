from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.errors import InvalidNameError
from kip30.names import MAX_NAME_BYTES, Key, check_id, check_namespace, escape, parse_key, unescape

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
def test_what_no_text_escapes_to_is_refused(segment: str) -> None:
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
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(InvalidNameError):
        parse_key(text)


@pytest.mark.parametrize("value", [None, 3, b"a", ["a"], {"a": 1}])
def test_another_type_is_refused_by_name(value: Any) -> None:
    with pytest.raises(InvalidNameError, match="must be a str"):
        parse_key(value)


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
