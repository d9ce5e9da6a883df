"""The record of bans."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30 import InvalidNameError, StoreError
from kip30.runtime.bans import Ban, Bans, bans_key, decode_bans, encode_bans

pytestmark = pytest.mark.small

DAY = 1_800_000_000.0
BAN = Ban("m", DAY + 60, DAY, "op@host", "disk fails")

_texts = st.text(max_size=20)
_times = st.floats(0, 4e9)
_bans = st.builds(Ban, _texts, _times, _times, _texts, _texts)
_records = st.builds(
    Bans,
    st.integers(0),
    st.lists(_bans).map(tuple),
    st.dictionaries(st.just("added later"), st.integers()),
)


@given(_records)
def test_a_record_is_read_as_it_was_written(bans: Bans) -> None:
    assert decode_bans("g", encode_bans(bans)) == bans


@given(_bans)
def test_a_ban_is_shown_on_one_line(ban: Ban) -> None:
    """Another program may have written it: the words go to logs and terminals."""
    assert str(ban).isprintable()


def test_a_ban_says_until_when_by_whom_and_why() -> None:
    assert str(BAN).endswith(" by 'op@host': 'disk fails'")
    assert str(BAN).startswith("banned until 2027-01-1")
    assert str(BAN._replace(reason="")).endswith(" by 'op@host'")
    assert str(BAN._replace(until=1e300)).startswith("banned until 1e+300 by ")
    assert len(str(BAN._replace(reason="x" * 10_000))) < 300


def test_a_ban_is_over_at_its_time() -> None:
    bans = Bans(1, (BAN, BAN._replace(id="n", until=DAY)))
    assert bans.in_effect(DAY) == (BAN,)
    assert bans.in_effect(DAY + 60) == ()
    assert bans.of("n") is bans.bans[1]
    assert bans.of("o") is None


def damaged(**fields: Any) -> bytes:
    return json.dumps({**json.loads(encode_bans(Bans(3, (BAN,)))), **fields}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"[" * 100_000,
        damaged(format=2),
        damaged(number="1"),
        damaged(bans=None),
        damaged(bans={"m": 1}),
        damaged(bans=[{}]),
        damaged(bans=[{**BAN._asdict(), "until": float("nan")}]),
        damaged(bans=[{**BAN._asdict(), "until": None}]),
        damaged(bans=[{**BAN._asdict(), "id": 7}]),
        damaged(bans=[{**BAN._asdict(), "reason": None}]),
    ],
)
def test_a_record_that_is_none_is_an_error_that_names_its_key(data: bytes) -> None:
    with pytest.raises(StoreError, match="the bans of 'a/b' cannot be read") as error:
        decode_bans("a/b", data)
    assert f"delete {bans_key('a/b')} to begin anew" in str(error.value)


def test_a_name_that_is_too_long_has_no_record() -> None:
    with pytest.raises(InvalidNameError):
        bans_key("é" * 42)
