"""Every kind of value: accepted texts, and the complaints about others."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.config import (
    Address,
    Parser,
    addresses,
    boolean,
    choice,
    integer,
    milliseconds,
    path,
    paths,
    text,
)


@pytest.mark.parametrize(
    ("parser", "written", "value"),
    [
        (text, "kip 30", "kip 30"),
        (boolean, "TRUE", True),
        (boolean, "false", False),
        (integer(), "0", 0),
        (integer(minimum=-5), "-5", -5),
        (milliseconds(), "10000", 10.0),
        (milliseconds(minimum=0), "0", 0.0),
        (choice("quorum", "one"), "Quorum", "quorum"),
        (path, "/var/lib/kip30", Path("/var/lib/kip30")),
        (path, "~/kip30", Path.home() / "kip30"),
        (paths, "", ()),
        (paths, "/a, /b", (Path("/a"), Path("/b"))),
        (paths, "/a:/b", (Path("/a"), Path("/b"))),
        (addresses(2379), "etcd-1", (Address("etcd-1", 2379),)),
        (addresses(2379), "a:1, [::1]:2,[::1]", (("a", 1), ("::1", 2), ("::1", 2379))),
    ],
)
def test_takes_what_operators_write(parser: Parser[Any], written: str, value: object) -> None:
    assert parser.read(written) == value


@pytest.mark.parametrize(
    ("parser", "written", "complaint"),
    [
        (text, "", "empty; give a value or leave the key out"),
        (boolean, "yes", "neither true nor false"),
        (integer(minimum=1), "many", "not a whole number; write one like 10"),
        (integer(minimum=1), "0", "too small; write at least 1"),
        (integer(maximum=9), "10", "too large; write at most 9"),
        (integer(), "1" * 5000, "not a whole number"),
        (integer(), "\u0663", "not a whole number"),  # a digit, to Python and not to an operator
        (milliseconds(), "10s", "not a whole number of milliseconds; write 10000"),
        (milliseconds(), "2 min", "not a whole number of milliseconds; write 120000"),
        (milliseconds(), "1.5", "not a whole number of milliseconds; write 10000"),
        (milliseconds(), "NaN", "not a whole number of milliseconds; write 10000"),
        (milliseconds(minimum=100), "-1", "too small; write at least 100"),
        (milliseconds(), "86400001", "too large; write at most 86400000"),
        (choice("quorum", "one"), "quorun", "not one of quorum, one (did you mean quorum?)"),
        (path, "", "empty"),
        (path, "~nobody-has-this-name/x", "no home directory"),
        (path, "/x\ud800", "cannot be the name of a file"),
        (paths, "/x,/y\ud800", "cannot be the name of a file"),
        (text, "x\ud800", "cannot be written as UTF-8"),
        (text, os.fsdecode(b"x\xff"), "cannot be written as UTF-8"),
        (addresses(2379), "x\ud800:1", "cannot be written as UTF-8"),
        (paths, "/a,,/b", "an empty entry"),
        (addresses(2379), "", "an empty entry"),
        (addresses(2379), "http://etcd:2379", "not an address; write host:2379"),
        (addresses(2379), "::1:2379", "not an address; write host:2379 or [::1]:2379"),
        (addresses(2379), "etcd:0", "not a port; write one from 1 to 65535"),
        (addresses(2379), "etcd:65536", "not a port"),
    ],
)
def test_shows_what_to_write_instead(parser: Parser[Any], written: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=re.escape(complaint)):
        parser.read(written)


@given(st.text(st.characters(categories=["L"], min_codepoint=0x400), min_size=3))
def test_no_complaint_repeats_the_text(written: str) -> None:
    for parser in (boolean, integer(), milliseconds(), choice("one"), addresses(1)):
        complaint = ""
        try:
            parser.read(written)
        except ValueError as error:
            complaint = str(error)
        assert written not in complaint


@given(st.integers(1, 86_400_000))
def test_milliseconds_become_seconds(number: int) -> None:
    assert milliseconds().read(str(number)) == pytest.approx(number / 1000)


@pytest.mark.parametrize("address", ["etcd-1:2379", "10.0.0.1:1", "[fe80::1]:65535"])
def test_an_address_shows_as_it_is_written(address: str) -> None:
    assert str(addresses(1).read(address)[0]) == address
