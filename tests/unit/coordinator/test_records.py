"""Records come back as they were written; what cannot be read is refused by name."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.codecs import Codec
from kip30.coordinator.interface import JoinGroupMetadata
from kip30.coordinator.records import (
    MEMBER,
    MEMBER_BYTES,
    PART,
    STATE,
    STATE_BYTES,
    Assignment,
    GroupPhase,
    MemberRecord,
    StateRecord,
    decoded_part,
    metadata_digest,
)
from kip30.driver.records import Version
from kip30.errors import CodecError, ValueTooLargeError

from .made import assignment, record, state

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COUNTS = st.integers(0, 2**63 - 1)
ASSIGNMENTS = st.builds(
    Assignment,
    member_id=TEXTS,
    nonce=TEXTS,
    digest=TEXTS,
    since=COUNTS,
    is_standby=st.booleans(),
    share=st.binary(max_size=40),
    refusal=TEXTS,
    record=st.binary(max_size=40),
)
STATES = st.builds(
    StateRecord,
    phase=st.sampled_from(GroupPhase),
    generation=COUNTS,
    epoch=COUNTS,
    leader=TEXTS,
    attempt=TEXTS,
    parts=COUNTS,
    inline=st.dictionaries(TEXTS, ASSIGNMENTS, max_size=4),
    protocol_type=TEXTS,
    protocol=TEXTS,
    follow_up=st.booleans(),
    history=TEXTS,
)
MEMBERS = st.builds(
    MemberRecord,
    instance=TEXTS,
    nonce=TEXTS,
    protocol_type=TEXTS,
    rebalance_timeout_seconds=st.floats(0, 1e9, exclude_min=True),
    protocols=st.lists(st.builds(JoinGroupMetadata, TEXTS, st.binary(max_size=40))).map(tuple),
    digest=TEXTS,
    instance_version=st.none() | st.builds(Version, COUNTS, COUNTS),
    round=COUNTS,
    generation=st.integers(-1, 2**63 - 1),
    rejoin=st.integers(-1, 2**63 - 1),
    eligible=st.booleans(),
    cooperative=st.booleans(),
)
PARTS = st.dictionaries(TEXTS, ASSIGNMENTS | COUNTS, max_size=4)
CODECS: list[Codec[Any]] = [STATE, MEMBER, PART]
WRITTEN = {
    "group state": STATE.encode(state(3, inline={"a": assignment("a", share=b"abc")})),
    "group member": MEMBER.encode(record("a", protocols=["p", "q"])),
    "part of an assignment": PART.encode({"a": assignment("a", share=b"abc"), "b": 7}),
}
BY_KIND = dict(zip(WRITTEN, CODECS, strict=True))


@given(STATES)
def test_a_state_comes_back(written: StateRecord) -> None:
    assert STATE.decode(STATE.encode(written)) == written


@given(MEMBERS)
def test_a_member_comes_back(written: MemberRecord) -> None:
    assert MEMBER.decode(MEMBER.encode(written)) == written


@given(PARTS)
def test_a_part_comes_back(written: dict[str, Assignment | int]) -> None:
    encoded = PART.encode(written)
    assert PART.decode(encoded) == written
    assert decoded_part(encoded) == written


@pytest.mark.parametrize("damaged", ["MTIzNDU", "MTIz NDU=", "MTIzND\u00e9="])
def test_a_damaged_record_of_a_member_leaves_its_share_readable(damaged: str) -> None:
    one = assignment("a", share=b"abc", record=b"12345")
    encoded = PART.encode({"k": one}).replace(b"MTIzNDU=", damaged.encode())
    assert PART.decode(encoded) == {"k": one._replace(record=b"")}


@given(st.binary() | st.sampled_from([*WRITTEN.values()]), st.data())
def test_any_bytes_decode_to_a_record_or_raise_a_codec_error(
    found: bytes, data: st.DataObject
) -> None:
    cut, insert = data.draw(st.integers(0, len(found))), data.draw(st.binary(max_size=3))
    changed = found[:cut] + insert + found[cut + data.draw(st.integers(0, 3)) :]
    for codec in CODECS:
        try:
            codec.decode(changed)
        except CodecError:
            continue


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_record_of_a_later_format_is_refused_by_name(kind: str) -> None:
    written = WRITTEN[kind].replace(b'"format":1', b'"format":2', 1)
    with pytest.raises(CodecError, match=f"{kind} has format 2; this kip30 reads format 1"):
        BY_KIND[kind].decode(written)


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_field_that_is_not_known_is_passed_over(kind: str) -> None:
    written = WRITTEN[kind].replace(b'"format":1', b'"format":1,"new":{"a":[1]}', 1)
    assert BY_KIND[kind].decode(written) == BY_KIND[kind].decode(WRITTEN[kind])


@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda found: found[:-1], "too short|line of JSON"),
        (lambda found: found + b"x", "too long"),
        (lambda found: found.replace(b"\n", b" ", 1), "line of JSON"),
        (lambda _: b"", "line of JSON"),
        (lambda _: b"[]\n", "JSON object"),
        (lambda _: b"{}\n", "'record' is not a text"),
        (lambda _: b"[" * 100_000 + b"\n", "line of JSON"),
        (lambda _: b"9" * 5_000 + b"\n", "line of JSON"),
        (lambda found: found.replace(b'"format":1', b'"format":1.5', 1), "whole number"),
        (lambda found: found.replace(b'"format":1', b'"format":true', 1), "whole number"),
    ],
)
def test_a_damaged_record_is_refused_by_name(kind: str, change: Any, why: str) -> None:
    found = change(WRITTEN[kind])
    with pytest.raises(CodecError, match=f"{kind} is damaged.*({why})"):
        BY_KIND[kind].decode(found)


@pytest.mark.parametrize("kind", WRITTEN)
def test_the_record_of_another_kind_is_refused_by_name(kind: str) -> None:
    for other, codec in BY_KIND.items():
        if other != kind:
            with pytest.raises(CodecError, match=f"expected the record of a {other}"):
                codec.decode(WRITTEN[kind])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("phase", "DEAD"),
        ("phase", None),
        ("generation", -1),
        ("generation", 2**63),
        ("generation", "3"),
        ("leader", 3),
        ("leader", "\ud800"),
        ("follow_up", "yes"),
        ("assignments", {}),
        ("assignments", [1]),
        ("assignments", [{"instance": "a", "part": 1}, {"instance": "a", "part": 2}]),
    ],
)
def test_a_state_with_a_wrong_field_is_refused(field: str, value: object) -> None:
    fields = json.loads(WRITTEN["group state"].partition(b"\n")[0]) | {"assignments": []}
    damaged = json.dumps({**fields, field: value}).encode() + b"\n"
    with pytest.raises(CodecError, match="group state is damaged"):
        STATE.decode(damaged)


@pytest.mark.parametrize("seconds", ["0", "-1", "NaN", "Infinity", "1e999", '"60"', "true", "null"])
def test_a_member_that_waits_for_no_time_or_for_ever_is_refused(seconds: str) -> None:
    damaged = WRITTEN["group member"].replace(b"60.0", seconds.encode())
    with pytest.raises(CodecError, match="'rebalance_timeout_seconds'"):
        MEMBER.decode(damaged)


def test_the_version_of_an_instance_is_checked() -> None:
    damaged = WRITTEN["group member"].replace(b'"instance_version":""', b'"instance_version":"x"')
    with pytest.raises(CodecError, match="version of its instance"):
        MEMBER.decode(damaged)


def test_a_part_that_is_gone_or_damaged_is_none() -> None:
    assert decoded_part(None) is None
    assert decoded_part(b"damaged") is None


@pytest.mark.parametrize(
    ("codec", "written", "limit"),
    [
        (STATE, lambda size: state(1, protocol="p" * size), STATE_BYTES),
        (MEMBER, lambda size: record("a", protocol_type="t" * size), MEMBER_BYTES),
    ],
)
def test_a_record_is_as_long_as_its_limit_at_most(
    codec: Codec[Any], written: Any, limit: int
) -> None:
    room = limit - len(codec.encode(written(0)))
    assert len(codec.encode(written(room))) == limit
    with pytest.raises(ValueTooLargeError, match=str(limit)):
        codec.encode(written(room + 1))


def test_the_first_line_can_be_read_by_people() -> None:
    line = WRITTEN["group state"].splitlines()[0].decode()
    assert '"phase":"STABLE","generation":3' in line
    assert WRITTEN["group state"].endswith(b"\nabc")


def test_a_digest_tells_offers_apart() -> None:
    offers = [
        (),
        (("p", b""),),
        (("p", b"q"),),
        (("pq", b""),),
        (("p", b"q"), ("r", b"")),
        (("r", b""), ("p", b"q")),
    ]
    digests = [metadata_digest(tuple(JoinGroupMetadata(*one) for one in offer)) for offer in offers]
    assert len({*digests}) == len(offers)
    assert {len(digest) for digest in digests} == {16}
