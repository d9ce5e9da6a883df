"""Keys of a journal: comparing pages, and keys that no page had."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30.driver.scanning import Rejected
from kip30.pipeline.follow.known_keys import Known, KnownKeys, stamp


@pytest.fixture
def known(tmp_path: Path) -> Iterator[KnownKeys]:
    found = KnownKeys(tmp_path / "known.db")
    yield found
    found.close()


def test_a_page_is_compared_with_what_is_known(known: KnownKeys) -> None:
    known.fill([Known(b"same", "1"), Known(b"changed", "1"), Known(b"gone", "1")])
    known.begin_scan()
    assert known.changed([b"new", b"same"], ["1", "1"]) == [0]
    assert known.changed([b"changed"], ["2"]) == [0]
    assert list(known.unseen()) == [b"gone"]


def test_a_scan_forgets_the_one_before(known: KnownKeys) -> None:
    known.fill([Known(b"k", "1")])
    known.begin_scan()
    assert known.changed([b"k"], ["1"]) == []
    known.begin_scan()
    assert list(known.unseen()) == [b"k"]


def test_the_last_change_of_a_segment_counts(known: KnownKeys) -> None:
    known.apply(0, [Known(b"k", "1"), Known(b"k", None), Known(b"l", None), Known(b"l", "2")])
    known.begin_scan()
    assert known.changed([b"k", b"l"], ["1", "2"]) == [0]
    assert len(known) == 1


def test_keys_may_be_deleted_while_unseen_keys_are_read(known: KnownKeys) -> None:
    keys = [b"%05d" % number for number in range(25_000)]
    known.fill(Known(key, "1") for key in keys)
    known.begin_scan()
    found = []
    for key in known.unseen():
        found.append(key)
        if len(found) % 5_000 == 0:
            known.apply(len(found), [Known(one, None) for one in found])
    assert found == keys
    assert len(known) == 0


def test_a_rejected_record_hides_its_key_or_all_keys_below_it(known: KnownKeys) -> None:
    keys = [b"a", b"a%", b"a/1", b"a/2", b"a0", b"b_/1", b"bc/1", b"k"]
    known.fill(Known(key, "1") for key in keys)

    def unseen(*rejected: Rejected) -> list[bytes]:
        known.begin_scan()
        known.changed([b"k"], ["1"])
        known.reject(rejected)
        known.hide(rejected)
        return list(known.unseen())

    assert unseen() == keys[:-1]
    assert unseen(Rejected(b"/x", "foreign")) == keys[:-1]
    assert unseen(Rejected(b"/x", "foreign", b"a/1")) == [
        *(b"a", b"a%", b"a/2", b"a0", b"b_/1", b"bc/1")
    ]
    assert unseen(Rejected(b"/x", "hidden", None, b"a/")) == [b"a", b"a%", b"a0", b"b_/1", b"bc/1"]
    assert unseen(Rejected(b"/x", "hidden", None, b"b_/")) == [
        *(b"a", b"a%", b"a/1", b"a/2", b"a0", b"bc/1")
    ]
    assert unseen(Rejected(b"/x", "hidden", b"k", b"")) == []
    assert unseen(Rejected(b"/y", "hidden", b"a", b"a/")) == [b"a%", b"a0", b"b_/1", b"bc/1"]
    assert known.first_rejected(9) == [Rejected(b"/y", "hidden")]
    known.apply(1, [Known(b"a", "2")])
    known.note_readable(b"k")
    assert known.count_rejected() == 1
    known.note_readable(b"a")
    assert known.count_rejected() == 0
    known.reject([Rejected(b"/x", "foreign"), Rejected(b"/y", "foreign")])
    known.note_gone(b"/x")
    assert known.first_rejected(9) == [Rejected(b"/y", "foreign")]


def test_all_is_there_after_it_was_closed(tmp_path: Path) -> None:
    first = KnownKeys(tmp_path / "known.db")
    assert first.segment == -1
    first.apply(7, [Known(b"k", "1")])
    first.close()
    second = KnownKeys(tmp_path / "known.db")
    second.begin_scan()
    assert second.segment == 7
    assert second.changed([b"k"], ["1"]) == []
    second.fill(())
    assert second.segment == -1
    second.close()
    assert (tmp_path / "known.db").stat().st_mode & 0o077 == 0


def test_each_part_of_a_version_makes_a_difference() -> None:
    stamps = [
        stamp(1, 2, 3),
        stamp(1, 2, None),
        stamp(1, 0, 3),
        stamp(12, 3, None),
        stamp(1, 23, 3),
    ]
    assert len(set(stamps)) == len(stamps)


@pytest.mark.parametrize(
    ("prefix", "hidden"),
    [
        (b"a\xff", [b"a\xff", b"a\xff/1", b"a\xff\xff"]),
        (b"a\xff\xff", [b"a\xff\xff"]),
        (b"\xff", [b"\xff", b"\xff\xff/1"]),
        (b"\xff\xff", [b"\xff\xff/1"]),
    ],
)
def test_a_prefix_of_any_bytes_hides_the_keys_below_it(
    known: KnownKeys, prefix: bytes, hidden: list[bytes]
) -> None:
    keys = [b"a", b"a\xff", b"a\xff/1", b"a\xff\xff", b"b", b"\xff", b"\xff\xff/1"]
    known.fill(Known(key, "1") for key in keys)
    known.begin_scan()
    known.hide([Rejected(b"/x", "hidden", None, prefix)])
    assert list(known.unseen()) == [key for key in keys if key not in hidden]


def test_a_rejected_record_takes_no_look_at_keys_elsewhere(known: KnownKeys) -> None:
    known.fill(Known(b"%05d" % number, "1") for number in range(25_000))
    known.begin_scan()
    steps: list[bool] = []
    known._database.set_progress_handler(lambda: steps.append(True), 1_000)
    known.hide([Rejected(b"/x", "hidden", None, b"%05d" % 7)])
    known._database.set_progress_handler(None, 0)
    assert steps == []
    assert known.count_unseen() == 24_999
