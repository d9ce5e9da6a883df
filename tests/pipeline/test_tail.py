"""Tails: each change once and in order, despite interruptions; gaps explicit, then repaired."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kip30 import Storage
from kip30.driver.records import Kind
from kip30.driver.scanning import Completeness, Position
from kip30.errors import StoreError
from kip30.pipeline.follow.tail import SegmentSize, StoppedError, TailSettings
from kip30_conformance.neighbour.base import Spot
from tests.unit.etcd.admin import Admin
from tests.unit.zookeeper.alice import alice_on, hiding

from .feeding import (
    changes_of,
    gaps,
    journal_rows,
    position_of,
    rejected_in,
    repeated,
    states,
    storage_of,
    tail_in,
    version_of,
)
from .store import write_properties
from .stores import STORES, Stores, contents, fill, stores_in

SMALL = TailSettings(segment=SegmentSize(rows=7))


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as found:
        yield found


@pytest.fixture(params=STORES)
def config(request: pytest.FixtureRequest, stores: Stores) -> Path:
    return stores.config(request.param, f"t{os.urandom(4).hex()}")


@pytest.fixture
def embedded(stores: Stores) -> Path:
    return stores.config("embedded", f"t{os.urandom(4).hex()}")


def advance(folder: Path, config: Path) -> None:
    with tail_in(folder, config, settings=SMALL) as tail:
        tail.advance()


def test_everything_is_the_beginning(config: Path, tmp_path: Path) -> None:
    values = {f"n{number % 3}/k{number:02}": b"%d" % number for number in range(40)}
    fill(config, values)
    with tail_in(tmp_path, config, settings=SMALL) as tail:
        tail.advance()
        tail.advance()
    rows = journal_rows(tmp_path / "journal")
    assert states(rows) == values
    assert len(rows) == len(values)
    assert gaps(rows) == 0


def test_p25b_what_changes_follows(config: Path, tmp_path: Path) -> None:
    fill(config, {f"n/k{number}": b"first" for number in range(5)})
    with tail_in(tmp_path, config) as tail, storage_of(config) as storage:
        tail.advance()
        for turn in range(3):
            storage.set("n/k1", b"turn %d" % turn)
        storage.delete("n/k2")
        storage.put("n/new", b"new")
        tail.advance()
        tail.advance()
        versions = {key: version_of(storage, key) for key in ("n/k1", "n/new")}
        every = tail.completeness is Completeness.EVERY_CHANGE
    rows = journal_rows(tmp_path / "journal")[5:]
    turns = [value for key, value in changes_of(rows) if key == "n/k1"]
    assert turns == ([b"turn 0", b"turn 1", b"turn 2"] if every else [b"turn 2"])
    last = {row["key"]: row for row in rows}
    assert last.keys() == {"n/k1", "n/k2", "n/new"}
    assert last["n/k2"]["value"] is last["n/k2"]["version"] is None
    for key, version in versions.items():
        assert tuple(last[key]["version"].values()) == tuple(version)


@pytest.mark.parametrize("store", STORES)
def test_an_unreadable_record_is_not_reported_as_deleted(
    stores: Stores, store: str, tmp_path: Path
) -> None:
    namespace = f"t{os.urandom(4).hex()}"
    config, spot = stores.config(store, namespace), Spot(Kind.VALUE, "n", "k")
    fill(config, {"n/k": b"1", "n/other": b"1"})
    advance(tmp_path, config)
    with stores.neighbour(store, namespace) as neighbour:
        sound = neighbour.read(spot)
        neighbour.write(spot, neighbour.foreign(b"foreign"))
        for _ in range(2):
            advance(tmp_path, config)
            assert states(journal_rows(tmp_path / "journal")) == {"n/k": b"1", "n/other": b"1"}
            (rejected,) = rejected_in(tmp_path)
            assert rejected.endswith(b"n/k")
        neighbour.write(spot, sound)
    with storage_of(config) as storage:
        storage.set("n/k", b"2")
        advance(tmp_path, config)
        assert states(journal_rows(tmp_path / "journal")) == {"n/k": b"2", "n/other": b"1"}
        assert rejected_in(tmp_path) == []
        storage.delete("n/k")
    advance(tmp_path, config)
    assert states(journal_rows(tmp_path / "journal")) == {"n/other": b"1"}


@pytest.mark.parametrize("killed_at", ["", "appended"])
@pytest.mark.parametrize("store", ["embedded", "etcd"])
def test_a_record_that_changes_and_becomes_unreadable_in_one_pass(
    stores: Stores, store: str, tmp_path: Path, killed_at: str
) -> None:
    """And the other way round: the last change decides, also after a crash."""
    namespace = f"t{os.urandom(4).hex()}"
    config, spot = stores.config(store, namespace), Spot(Kind.VALUE, "n", "k")
    fill(config, {"n/k": b"1"})
    advance(tmp_path, config)
    with stores.neighbour(store, namespace) as neighbour, storage_of(config) as storage:
        storage.set("n/k", b"2")
        storage.set("n/other", b"1")
        sound = neighbour.read(spot)
        neighbour.write(spot, neighbour.foreign(b"foreign"))
        if killed_at:
            assert killed(tmp_path, config, killed_at, 1)
        advance(tmp_path, config)
        (rejected,) = rejected_in(tmp_path)
        assert rejected.endswith(b"n/k")
        neighbour.write(spot, neighbour.foreign(b"still foreign"))
        neighbour.write(spot, sound)
        storage.set("n/k", b"3")
        if killed_at:
            assert killed(tmp_path, config, killed_at, 1)
        advance(tmp_path, config)
    assert rejected_in(tmp_path) == []
    assert states(journal_rows(tmp_path / "journal")) == {"n/k": b"3", "n/other": b"1"}


@pytest.mark.parametrize("into", [None, "copied"])
def test_a_key_that_can_be_no_record_is_rejected_while_it_is_there(
    stores: Stores, tmp_path: Path, into: str | None
) -> None:
    """Whether it was there before the tail, or came later."""
    namespace = f"t{os.urandom(4).hex()}"
    config = stores.config("etcd", namespace)
    under = "" if into is None else f"/{namespace}/"
    admin = Admin(stores.settings("etcd")["plugin.etcd.endpoints"])
    before, later = (f"/{namespace}/kv/n//{number}" for number in (1, 2))

    def rejected() -> list[bytes]:
        with tail_in(tmp_path, config, under=under, into=into) as tail:
            tail.advance()
        return rejected_in(tmp_path)

    fill(config, {"n/k": b"1"})
    admin.put(before, b"foreign")
    assert rejected() == [before.encode()]
    admin.put(later, b"foreign")
    admin.put(later, b"changed")
    assert rejected() == [before.encode(), later.encode()]
    admin.delete(before)
    assert rejected() == [later.encode()]
    admin.delete(later)
    assert rejected() == []
    rows = journal_rows(tmp_path / "journal")
    assert [key for key, _ in changes_of(rows)] == ["n/k" if into is None else "copied/kv/n/k"]


@pytest.mark.parametrize("hidden", ["n", "n/k1"])
def test_a_record_that_an_acl_hides_is_not_reported_as_deleted(
    stores: Stores, hidden: str, tmp_path: Path
) -> None:
    namespace = f"t{os.urandom(4).hex()}"
    config = stores.config("zookeeper", namespace)
    values = dict.fromkeys(("n/k1", "n/k2", "m/k1", "k"), b"1")
    fill(config, values)
    advance(tmp_path, config)
    with alice_on(stores.ensemble("zookeeper")) as alice, hiding(alice) as hide:
        hide(f"/{namespace}/kv/{hidden}")
        with storage_of(config) as storage:
            storage.delete("m/k1")
        advance(tmp_path, config)
        assert rejected_in(tmp_path) == [f"/{namespace}/kv/{hidden}".encode()]
    del values["m/k1"]
    assert states(journal_rows(tmp_path / "journal")) == values
    advance(tmp_path, config)
    assert rejected_in(tmp_path) == []
    assert states(journal_rows(tmp_path / "journal")) == values


def test_a_part_of_a_store(config: Path, tmp_path: Path) -> None:
    fill(config, {"in/k": b"1", "out/k": b"1", "in/deep/k": b"1"})
    with tail_in(tmp_path, config, under="in") as tail, storage_of(config) as storage:
        tail.advance()
        storage.set("out/k", b"2")
        storage.delete("in/deep/k")
        tail.advance()
    rows = journal_rows(tmp_path / "journal")
    assert states(rows) == {"in/k": b"1"}
    assert len(rows) == 3


CHILD = """
import os, signal, sys
from pathlib import Path
from kip30.pipeline.follow import journal as feed_journal, tail
from tests.pipeline.feeding import tail_in
from tests.pipeline.test_tail import SMALL
folder, config, point, count = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])
owner, name = {
    "written": (feed_journal, "_write"),
    "appended": (feed_journal.Journal, "append"),
    "known": (tail.KnownKeys, "apply"),
    "noted": (feed_journal.Journal, "note"),
}[point]
original = getattr(owner, name)
def deadly(*args):
    global count
    result = original(*args)
    count -= 1
    if not count:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(owner, name, deadly)
with tail_in(folder, config, settings=SMALL) as opened:
    opened.advance()
"""


def killed(folder: Path, config: Path, point: str, count: int) -> bool:
    """Advance in a process that is killed after the *count*-th time at *point*."""
    root = str(Path(__file__).parents[2])
    words = [sys.executable, "-c", CHILD, str(folder), str(config), point, str(count)]
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), root]))
    ended = subprocess.run(words, env=os.environ | {"PYTHONPATH": path}, check=False)
    assert ended.returncode in {0, -signal.SIGKILL}
    return ended.returncode != 0


@pytest.mark.parametrize(
    ("store", "point"),
    [
        *(("embedded", "written"), ("etcd", "written"), ("zookeeper", "written")),
        *(("embedded", "appended"), ("etcd", "appended"), ("zookeeper", "appended")),
        *(("etcd", "known"), ("zookeeper", "known")),
    ],
)
def test_p21_killed_at_each_point(stores: Stores, store: str, point: str, tmp_path: Path) -> None:
    config = stores.config(store, f"t{os.urandom(4).hex()}")
    fill(config, {f"n/k{number:02}": b"first" for number in range(20)})
    advance(tmp_path, config)
    with storage_of(config) as storage:
        for number in range(18):
            storage.set(f"n/k{number:02}", b"second")
        storage.delete("n/k19")
        storage.set("n/k00", b"third")
    assert killed(tmp_path, config, point, 1)
    with storage_of(config) as storage:
        storage.set("n/k17", b"third")
    assert killed(tmp_path, config, point, 2)
    advance(tmp_path, config)
    rows = journal_rows(tmp_path / "journal")
    expected = {f"n/k{number:02}": b"second" for number in range(18)}
    expected |= {"n/k00": b"third", "n/k17": b"third", "n/k18": b"first"}
    assert states(rows) == expected
    assert repeated(rows) == []
    assert [key for key, value in changes_of(rows) if value is None] == ["n/k19"]
    assert gaps(rows) == 0
    if store == "etcd":
        assert len(rows) == 20 + 18 + 1 + 1 + 1


def test_p24_a_compacted_history(stores: Stores, tmp_path: Path) -> None:
    config = stores.config("etcd", f"t{os.urandom(4).hex()}")
    fill(config, {f"n/k{number}": b"first" for number in range(10)})
    advance(tmp_path, config)
    with storage_of(config) as storage:
        storage.set("n/k1", b"second")
        storage.delete("n/k2")
        storage.put("n/new", b"new")
        storage.delete("n/new")
        storage.put("n/other", b"other")
    stores.ensemble("etcd").compact()
    advance(tmp_path, config)
    _expect_one_gap(tmp_path, config)


def test_p24_an_overrun_log(embedded: Path, tmp_path: Path) -> None:
    fill(embedded, {f"n/k{number}": b"first" for number in range(10)})
    advance(tmp_path, embedded)
    fill(embedded, {f"many/k{number}": b"1" for number in range(5_200)})
    with storage_of(embedded) as storage:
        storage.set("n/k1", b"second")
        storage.delete("n/k2")
    with tail_in(tmp_path, embedded) as tail:
        tail.advance()
    _expect_one_gap(tmp_path, embedded)


def test_p24_another_store(config: Path, tmp_path: Path) -> None:
    fill(config, {"n/k1": b"1", "n/k2": b"1"})
    at = position_of(config)
    with tail_in(tmp_path, config, after=Position("elsewhere", at.at)) as tail:
        for _ in range(2):
            with pytest.raises(StoreError, match=f"it was elsewhere, and is {re.escape(at.store)}"):
                tail.advance()
    assert journal_rows(tmp_path / "journal") == []
    elsewhere = TailSettings(accepted_stores=["elsewhere"])
    with (
        tail_in(tmp_path, config, settings=elsewhere) as tail,
        pytest.raises(StoreError, match="another store than before"),
    ):
        tail.advance()
    with tail_in(
        tmp_path, config, settings=TailSettings(accepted_stores=["elsewhere", at.store])
    ) as tail:
        tail.advance()
    _expect_one_gap(tmp_path, config)


def test_p24_a_store_that_was_made_anew_with_equal_versions(tmp_path: Path) -> None:
    """Versions and times of two stores say nothing of each other, even if they are equal."""
    tail, store, former = (tmp_path / name for name in ("tail", "store", "former"))
    config = write_properties(
        tmp_path / "kip30.properties",
        {"plugin.backend": "embedded", "plugin.embedded.directory": store},
    )
    fill(config, {f"n/k{number}": b"first" for number in range(5)})
    advance(tail, config)
    with storage_of(config) as storage:
        versions = [version_of(storage, key) for key in sorted(storage.list("n"))]
    store.rename(former)
    fill(config, {f"n/k{number}": b"second" for number in range(4)})
    with storage_of(config) as storage:
        assert [version_of(storage, key) for key in sorted(storage.list("n"))] == versions[:4]
    accepted = TailSettings(accepted_stores=[position_of(config).store])
    with tail_in(tail, config, settings=accepted) as opened:
        opened.advance()
    rows = journal_rows(tail / "journal")
    assert gaps(rows) == 1
    assert states(rows) == {f"n/k{number}": b"second" for number in range(4)}


@pytest.mark.parametrize("store", [store for store in STORES if store != "cassandra"])
def test_p24_an_older_state_of_the_same_store(stores: Stores, store: str, tmp_path: Path) -> None:
    """As after a restore from a backup: deletions since then are no deletions of users."""
    config = stores.config(store, f"t{os.urandom(4).hex()}")
    fill(config, {"n/k1": b"1", "n/k2": b"1"})
    at = position_of(config)
    later = Position(at.store, str(int(at.at) + 10**9))
    with (
        tail_in(tmp_path, config, after=later) as tail,
        pytest.raises(StoreError, match=f"was at {later.at}, .* it was restored"),
    ):
        tail.advance()
    assert journal_rows(tmp_path / "journal") == []
    settings = TailSettings(accepted_stores=[at.store])
    with tail_in(tmp_path, config, settings=settings) as tail:
        tail.advance()
    advance(tmp_path, config)
    _expect_one_gap(tmp_path, config)


@pytest.mark.parametrize("accepted", [False, True])
def test_p24_another_store_while_the_first_listing_is_not_done(
    stores: Stores, tmp_path: Path, *, accepted: bool
) -> None:
    first = stores.config("embedded", f"t{os.urandom(4).hex()}")
    fill(first, {f"n/k{number:02}": b"one" for number in range(60)})
    tail, settings = tmp_path / "tail", SMALL
    pages = iter([False] * 3)
    with (
        tail_in(tail, first, settings=SMALL, stopped=lambda: next(pages, True)) as opened,
        pytest.raises(StoppedError),
    ):
        opened.advance()
    assert journal_rows(tail / "journal")
    other = tmp_path / "other.properties"
    write_properties(
        other, {"plugin.backend": "embedded", "plugin.embedded.directory": tmp_path / "store"}
    )
    fill(other, {f"n/k{number:02}": b"two" for number in range(5)})
    if accepted:
        settings = replace(SMALL, accepted_stores=[position_of(other).store])
        with tail_in(tail, other, settings=settings) as opened:
            opened.advance()
        advance(tail, other)
        rows = journal_rows(tail / "journal")
        assert states(rows) == {f"n/k{number:02}": b"two" for number in range(5)}
        assert gaps(rows) == 1
        return
    with (
        tail_in(tail, other, settings=settings) as opened,
        pytest.raises(StoreError, match="another store than before"),
    ):
        opened.advance()


def test_all_keys_are_read_again_into_another_target(config: Path, tmp_path: Path) -> None:
    values = {f"n/k{number}": b"1" for number in range(20)}
    fill(config, values)
    advance(tmp_path, config)
    before = len(journal_rows(tmp_path / "journal"))
    for _ in range(2):
        with tail_in(tmp_path, config, settings=SMALL) as tail:
            tail.read_again()
            tail.read_again()
            tail.advance()
            tail.advance()
        rows = journal_rows(tmp_path / "journal")[before:]
        assert sorted(changes_of(rows)) == sorted(values.items())
        assert gaps(rows) == 0
        before += len(values)


@pytest.mark.parametrize("store", ["zookeeper", "consul"])
def test_a_scan_that_finds_little_deletes_nothing(
    stores: Stores, store: str, tmp_path: Path
) -> None:
    config = stores.config(store, f"t{os.urandom(4).hex()}")
    values = {f"n/k{number}": b"1" for number in range(10)}
    fill(config, values)
    advance(tmp_path, config)
    with storage_of(config) as storage:
        for key in sorted(values)[:6]:
            storage.delete(key)
        storage.put("n/new", b"new")
    with (
        tail_in(tmp_path, config, settings=TailSettings(deletions=5)) as tail,
        pytest.raises(StoreError, match="6 of 10 keys are gone"),
    ):
        tail.advance()
    assert values.items() <= states(journal_rows(tmp_path / "journal")).items()
    with tail_in(tmp_path, config, settings=TailSettings(deletions=6)) as tail:
        tail.advance()
    left = dict(sorted(values.items())[6:]) | {"n/new": b"new"}
    assert states(journal_rows(tmp_path / "journal")) == left


def test_a_tenth_of_the_keys_that_are_known_by_now_may_be_deleted(
    stores: Stores, tmp_path: Path
) -> None:
    """In one tail: the number grows and shrinks with the store, and new keys do not count yet."""
    config = stores.config("zookeeper", f"t{os.urandom(4).hex()}")
    segments = TailSettings(segment=SegmentSize(rows=50))
    with tail_in(tmp_path, config, settings=segments) as tail, storage_of(config) as storage:
        tail.advance()
        storage.put_many({f"n/k{number:04}": b"1" for number in range(1_500)})
        tail.advance()
        keys = sorted(storage.list("n"))
        for end in (1_350, 1_215, 1_100):
            _delete(storage, keys[end:])
            del keys[end:]
            tail.advance()
        _delete(storage, keys[989:])
        storage.put_many({f"n/new{number:04}": b"1" for number in range(100)})
        with pytest.raises(StoreError, match=r"111 of 1100 keys are gone .* no more than 110 may"):
            tail.advance()
    assert states(journal_rows(tmp_path / "journal")).keys() >= set(keys)


def _delete(storage: Storage[bytes], keys: list[str]) -> None:
    for key in keys:
        storage.delete(key)


def test_p24_killed_while_a_gap_is_repaired(stores: Stores, tmp_path: Path) -> None:
    config = stores.config("etcd", f"t{os.urandom(4).hex()}")
    fill(config, {f"n/k{number:02}": b"first" for number in range(30)})
    advance(tmp_path, config)
    with storage_of(config) as storage:
        for number in range(20):
            storage.set(f"n/k{number:02}", b"second")
        for number in range(20, 29):
            storage.delete(f"n/k{number:02}")
    stores.ensemble("etcd").compact()
    assert killed(tmp_path, config, "appended", 3)
    advance(tmp_path, config)
    _expect_one_gap(tmp_path, config)
    deleted = Counter(
        key for key, value in changes_of(journal_rows(tmp_path / "journal")) if value is None
    )
    assert deleted == Counter(f"n/k{number:02}" for number in range(20, 29))


def _expect_one_gap(folder: Path, config: Path) -> None:
    """Require that the journal shows one gap, and after it the exact states, none of them twice."""
    with tail_in(folder, config) as tail:
        tail.advance()
    rows = journal_rows(folder / "journal")
    assert gaps(rows) == 1
    assert repeated(rows) == []
    with storage_of(config) as storage:
        keys = {key for space in ("n", "many") for key in storage.list(space)}
    assert states(rows) == contents(config, sorted(keys))


def test_files_that_were_copied_at_two_moments_are_refused(embedded: Path, tmp_path: Path) -> None:
    """The known keys would hide changes that the copy of the journal does not have."""
    run, copy = tmp_path / "run", tmp_path / "copy"
    fill(embedded, {"n/k": b"1"})
    advance(run, embedded)
    shutil.copytree(run / "journal", copy / "journal")
    with storage_of(embedded) as storage:
        storage.set("n/k", b"2")
    advance(run, embedded)
    shutil.copy(run / "known.db", copy / "known.db")
    with pytest.raises(StoreError, match="known keys are as of segment 3, and the journal ends"):
        advance(copy, embedded)


def test_a_tail_stops_between_segments(embedded: Path, tmp_path: Path) -> None:
    values = {f"n/k{number:02}": b"1" for number in range(20)}
    fill(embedded, values)

    def has_segment() -> bool:
        return len(list((tmp_path / "journal").glob("*.parquet"))) > 2

    with (
        tail_in(tmp_path, embedded, settings=SMALL, stopped=has_segment) as tail,
        pytest.raises(StoppedError),
    ):
        tail.advance()
    assert 0 < len(journal_rows(tmp_path / "journal")) < 20
    advance(tmp_path, embedded)
    rows = journal_rows(tmp_path / "journal")
    assert states(rows) == values
    assert len(rows) == 20


def test_idle_passes_write_no_segment(config: Path, tmp_path: Path) -> None:
    fill(config, {"n/k": b"1"})
    advance(tmp_path, config)
    before = list((tmp_path / "journal").glob("*.parquet"))
    for _ in range(3):
        advance(tmp_path, config)
    assert list((tmp_path / "journal").glob("*.parquet")) == before


def test_the_position_moves_on_without_changes(stores: Stores, tmp_path: Path) -> None:
    """Changes outside the view may be compacted: nothing of the view is missing then."""
    config = stores.config("etcd", f"t{os.urandom(4).hex()}")
    fill(config, {"n/k": b"1"})
    advance(tmp_path, config)
    with storage_of(stores.config("etcd", "elsewhere")) as storage:
        storage.set("n/k", b"1")
        advance(tmp_path, config)
        stores.ensemble("etcd").compact()
    advance(tmp_path, config)
    assert gaps(journal_rows(tmp_path / "journal")) == 0
