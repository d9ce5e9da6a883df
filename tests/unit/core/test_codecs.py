from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30 import BYTES, JSON, STR, CodecError

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="ascii")), inner),
)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_round_trips(text: str) -> None:
    assert STR.decode(STR.encode(text)) == text


@given(st.binary())
def test_bytes_round_trip(data: bytes) -> None:
    assert BYTES.decode(BYTES.encode(data)) == data


@given(json_values)
def test_json_round_trips(value: Any) -> None:
    assert JSON.decode(JSON.encode(value)) == value


def test_a_view_is_copied() -> None:
    source = bytearray(b"abc")
    codec: Any = BYTES
    encoded = codec.encode(source)
    source[0] = 0
    assert encoded == b"abc"


@pytest.mark.parametrize(
    ("codec", "value"),
    [(STR, b"x"), (STR, "\ud800"), (BYTES, "x"), (JSON, {1, 2}), (JSON, float("nan"))],
)
def test_a_value_of_another_type_is_refused(codec: Any, value: Any) -> None:
    with pytest.raises(CodecError):
        codec.encode(value)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (STR, b"\xff"),
        (JSON, b"{"),
        (JSON, b"\xff"),
        (JSON, b"[" * 100_000),
        (JSON, b"NaN"),
        (JSON, b'{"a":[-Infinity]}'),
    ],
)
def test_foreign_bytes_are_refused(codec: Any, data: bytes) -> None:
    with pytest.raises(CodecError, match="BYTES"):
        codec.decode(data)
