"""Comparing stores and snapshots: every difference is found, and nothing else is called one."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from typing_extensions import override

from kip30 import BYTES, PluginLocator, UsageError
from kip30.driver.scanning import Layout
from kip30.pipeline.compare import diff, frame_comparison
from kip30.pipeline.compare.diff import DiffOptions
from kip30.pipeline.compare.difference_files import read_differences
from kip30.pipeline.compare.frame_comparison import comparable
from kip30.pipeline.compare.record_digests import with_digest
from kip30.pipeline.run.directory import read_manifest
from kip30.pipeline.run.progress import NoProgress, WaveProgress
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.spark.schemas import RECORDS, spark_schema
from kip30.pipeline.stores.endpoints import (
    Endpoint,
    SnapshotEndpoint,
    parse_endpoint,
    store_endpoint,
)
from kip30.pipeline.transfer import snapshot
from tests.gate.sizes import others_large

from .planned import queries
from .stores import Stores, fill, stores_in

FORMS = ["one-task", "frames"]

SAME = {"both-empty": b""} | {f"n{number % 3}/k{number:03}": b"%d" % number for number in range(60)}
PLANTED_LEFT = {"n0/changed": b"old!", "n1/left": b"here", "left-empty": b"", "é/ü": b"l"}
PLANTED_RIGHT = {"n0/changed": b"new!", "n2/right": b"here", "right-empty": b"", "é/ü": b"r"}
PLANTED = {
    "n0/changed": "differs",
    "é/ü": "differs",
    "n1/left": "only_left",
    "left-empty": "only_left",
    "n2/right": "only_right",
    "right-empty": "only_right",
}
MIRRORED = {"only_left": "only_right", "only_right": "only_left", "differs": "differs"}


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    with stores_in(tmp_path_factory.mktemp("stores")) as running:
        yield running


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return in which form of the rule small sides are compared."""
    if request.param == "frames":
        monkeypatch.setattr(diff, "fit_one_task", lambda *_: False)
    return str(request.param)


@pytest.fixture(scope="module")
def left(stores: Stores) -> Path:
    config = stores.config("embedded", "left")
    fill(config, SAME | PLANTED_LEFT)
    return config


@pytest.fixture(scope="module")
def right(stores: Stores) -> Path:
    config = stores.config("embedded", "right")
    fill(config, SAME | PLANTED_RIGHT)
    return config


def live(config: Path, under: str = "") -> Endpoint:
    return parse_endpoint(f"{config}#{under}" if under else str(config))


def taken(spark: SparkSession, config: Path, out: Path) -> SnapshotEndpoint:
    """Return a snapshot of the store of *config*."""
    options = snapshot.SnapshotOptions(source=store_endpoint(live(config)), out=out, span_rows=20)
    snapshot.run(spark, options)
    return SnapshotEndpoint(str(out), out, "")


def compared(
    spark: SparkSession, left: Endpoint, right: Endpoint, out: Path, **more: Any
) -> tuple[Report, dict[str, str]]:
    """Return the report of a diff, and the kind of each key in its files."""
    progress = more.pop("progress", None)
    options = DiffOptions(left=left, right=right, out=out, span_rows=20, **more)
    report = diff.run(spark, options, progress)
    return report, kinds(differences(spark, out))


def differences(spark: SparkSession, out: Path) -> DataFrame:
    files = [file for wave in read_manifest(out).waves for file in wave.files]
    return read_differences(spark, out, files)


def kinds(found: DataFrame) -> dict[str, str]:
    rows = found.collect()
    assert len({row.key for row in rows}) == len(rows)
    return {row.key: row.kind for row in rows}


@pytest.mark.usefixtures("form")
def test_planted_differences_are_found_and_no_others(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """P17, of values of one length, and of empty values against missing keys."""
    report, found = compared(spark, live(left), live(right), tmp_path / "run")
    assert found == PLANTED
    assert report.ending is JobEnding.FINDINGS
    assert {finding["key"]: finding["outcome"] for finding in report.findings} == PLANTED
    assert report.counts["left_rows"] == len(SAME) + len(PLANTED_LEFT)
    assert report.counts["right_rows"] == len(SAME) + len(PLANTED_RIGHT)
    assert [report.counts[kind] for kind in ("only_left", "only_right", "differs")] == [2, 2, 2]
    rows = {row.key: row for row in differences(spark, tmp_path / "run").collect()}
    changed, empty = rows["n0/changed"], rows["left-empty"]
    assert changed.left_bytes == changed.right_bytes == 4
    assert changed.left_digest != changed.right_digest
    assert (empty.left_bytes, empty.right_bytes, empty.right_version) == (0, None, None)
    with PluginLocator().startup(left) as locator:
        stored = locator.storage(BYTES).get("n0/changed")
    assert stored is not None
    assert tuple(changed.left_version) == tuple(stored.version)


def test_a_small_diff_plans_no_query(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """Plans and the code that is generated for them cost more than all the rest of it."""
    before = queries(spark)
    options = DiffOptions(left=live(left), right=live(right), out=tmp_path / "run", span_rows=20)
    report = diff.run(spark, options)
    assert queries(spark) == before
    assert {finding["key"]: finding["outcome"] for finding in report.findings} == PLANTED


@pytest.mark.large
def test_snapshots_mirrored_and_whole_values(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """P18, P19: snapshot against snapshot, against live stores, both ways, in both modes."""
    first, second = taken(spark, left, tmp_path / "l"), taken(spark, right, tmp_path / "r")
    assert compared(spark, first, second, tmp_path / "a")[1] == PLANTED
    assert compared(spark, first, live(right), tmp_path / "b", full=True)[1] == PLANTED
    report, found = compared(spark, live(right), first, tmp_path / "c")
    assert found == {key: MIRRORED[kind] for key, kind in PLANTED.items()}
    forth = differences(spark, tmp_path / "b")
    back = differences(spark, tmp_path / "c")
    assert report.counts["only_left"] == 2
    assert {(r.key, r.left_digest, r.right_digest) for r in forth.collect()} == {
        (r.key, r.right_digest, r.left_digest) for r in back.collect()
    }


Values = dict[str, bytes]
_FEW_KEYS = st.sampled_from(["a", "b", "a/b", "é"])
_FEW_VALUES = st.sampled_from([b"", b"0", b"1", b"00"])
_SIDES = st.dictionaries(_FEW_KEYS, _FEW_VALUES)
_OF_RECORDS = (None, None, None, False, None, None, None)
"""The columns from *created* on of a record."""


def table_of(spark: SparkSession, maps: list[Values], *, full: bool) -> DataFrame:
    """Return *maps* as one side of a comparison, each with keys of its own."""
    rows = [
        (f"{number}:{key}", value, (number, 0), *_OF_RECORDS)
        for number, values in enumerate(maps)
        for key, value in values.items()
    ]
    names = ["key", "value", "version", "created", "modified", "owner", "moving"]
    names += ["rejected", "record", "prefix"]
    assert names == RECORDS.names
    table = spark.createDataFrame(rows, spark_schema(Layout.KIP30))
    return comparable(with_digest(table), full=full)


def expected_kind(left: bytes | None, right: bytes | None) -> str | None:
    if left is None or right is None:
        return "only_left" if right is None else "only_right"
    return None if left == right else "differs"


# To shrink an example takes a job of Spark's for each attempt.
@settings(max_examples=2, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(st.tuples(_SIDES, _SIDES), min_size=40, max_size=80))
def test_digests_and_values_agree(spark: SparkSession, pairs: list[tuple[Values, Values]]) -> None:
    """P19; and both are right."""
    expected = {
        f"{number}:{key}": kind
        for number, (left, right) in enumerate(pairs)
        for key in left.keys() | right.keys()
        if (kind := expected_kind(left.get(key), right.get(key)))
    }
    for full in (False, True):
        left = table_of(spark, [one for one, _ in pairs], full=full)
        right = table_of(spark, [one for _, one in pairs], full=full)
        assert kinds(frame_comparison.differences(left, right, full=full)) == expected


def raw_table(spark: SparkSession, values: dict[bytes, bytes | None], *, full: bool) -> DataFrame:
    """Return nodes of another program as one side of a comparison."""
    rows = [
        (path, path.decode(), value, "persistent", (1, 0), *_OF_RECORDS)
        for path, value in values.items()
    ]
    return comparable(with_digest(spark.createDataFrame(rows, spark_schema(Layout.RAW))), full=full)


@pytest.mark.parametrize("full", [False, True])
def test_no_data_is_not_empty_data(spark: SparkSession, *, full: bool) -> None:
    """P17, of nodes: with their digests, and with their values."""
    left = raw_table(spark, {b"/a": None, b"/b": b"", b"/c": None, b"/d": b""}, full=full)
    right = raw_table(spark, {b"/a": None, b"/b": b"", b"/c": b"", b"/d": None}, full=full)
    rows = frame_comparison.differences(left, right, full=full).collect()
    found = {bytes(row.key): row.kind for row in rows}
    assert found == {b"/c": "differs", b"/d": "differs"}


REFUSED = [(b"a", None), (b"b", b"b/"), (None, b"c/"), (None, b"c/d/"), (None, b"c0"), (None, None)]
"""The record and the prefix of each rejected row of one side."""


def with_refused(spark: SparkSession, table: DataFrame) -> DataFrame:
    """Return *table* with `REFUSED`, whose places in the store are no keys."""
    rows = [
        (f"/place/{number}", b"", (0, 0), None, None, None, False, "why", *hidden)
        for number, hidden in enumerate(REFUSED)
    ]
    refused = with_digest(spark.createDataFrame(rows, spark_schema(Layout.KIP30)))
    return table.unionByName(comparable(refused, full=False))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_key_that_a_rejected_row_may_hide_is_unsettled(spark: SparkSession, side: str) -> None:
    """By the key whose place the row has, and by the prefix of all keys below it."""
    hidden = dict.fromkeys(("a", "b", "b/x", "c/d/e", "c/x", "c0", "c00"), b"")
    apart = dict.fromkeys(("a/x", "a0", "b0", "c", "d", "/place/0", ""), b"")
    tables = {
        one: comparable(
            with_digest(
                spark.createDataFrame(
                    [(key, b"", (1, 0), *_OF_RECORDS) for key in keys], spark_schema(Layout.KIP30)
                )
            ),
            full=False,
        )
        for one, keys in (("full", hidden | apart), ("few", ["d"]))
    }
    few = with_refused(spark, tables["few"])
    pair = (few, tables["full"]) if side == "left" else (tables["full"], few)
    found = frame_comparison.differences(*pair, full=False)
    found = frame_comparison.unsettle_hidden(found, side, frame_comparison.prefixes_of(few))
    missing = "only_right" if side == "left" else "only_left"
    expected = dict.fromkeys(apart, missing) | dict.fromkeys(hidden, "unsettled")
    del expected["d"]
    assert kinds(found) == expected


class Meddling(NoProgress):
    """Calls *meddle* once: when both sides were read, or after the first wave of the second."""

    def __init__(self, meddle: Callable[[], object], *, early: bool = False) -> None:
        self._meddle = meddle
        self._early = early
        self._sides = 0

    @override
    def wave(self, done: WaveProgress) -> None:
        is_due = self._sides == 1 and (self._early or done.spans == done.planned)
        self._sides += done.spans == done.planned or is_due
        if is_due:
            self._meddle()


def change(config: Path, values: dict[str, bytes | None]) -> None:
    """Set keys, or delete those without a value."""
    with PluginLocator().startup(config) as locator:
        storage = locator.storage(BYTES)
        for key, value in values.items():
            if value is None:
                storage.delete(key)
            else:
                storage.set(key, value)


def planted(stores: Stores, name: str) -> tuple[Path, Path]:
    """Return two stores with the planted differences, for one test to change."""
    pair = stores.config("embedded", f"{name}-l"), stores.config("embedded", f"{name}-r")
    fill(pair[0], SAME | PLANTED_LEFT)
    fill(pair[1], SAME | PLANTED_RIGHT)
    return pair


@pytest.mark.large
def test_a_key_that_changed_after_it_was_read_is_unsettled(
    spark: SparkSession, stores: Stores, tmp_path: Path, form: str
) -> None:
    """A key that one side changed, deleted or created since is not called different."""
    left, right = planted(stores, f"unsettled-{form}")

    def meddle() -> None:
        change(left, {"n0/changed": b"new!", "right-empty": b""})
        change(right, {"n2/right": None, "left-empty": b"", "n1/k001": b"not read any more"})

    report, found = compared(
        spark, live(left), live(right), tmp_path / "run", progress=Meddling(meddle)
    )
    changed = ("n0/changed", "right-empty", "n2/right", "left-empty")
    assert found == PLANTED | dict.fromkeys(changed, "unsettled")
    assert (report.ending, report.counts["unsettled"]) == (JobEnding.FINDINGS, len(changed))


@pytest.mark.large
def test_no_key_that_writers_change_is_called_different(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    """Writers give both stores the same values, one after the other."""
    left, right = planted(stores, "busy")
    hot = [f"hot/{number}" for number in range(20)]
    stop = threading.Event()
    rounds: list[int] = []

    def write() -> None:
        with PluginLocator().startup(left) as one, PluginLocator().startup(right) as other:
            first, second = one.storage(BYTES), other.storage(BYTES)
            while not stop.is_set():
                rounds.append(len(rounds))
                for key in hot:
                    first.set(key, b"%d" % len(rounds))
                    second.set(key, b"%d" % len(rounds))

    with _running(write, stop):
        _, found = compared(spark, live(left), live(right), tmp_path / "run")
    assert len(rounds) > 1
    assert {kind for key, kind in found.items() if key in hot} <= {"unsettled"}
    assert {key: kind for key, kind in found.items() if key not in hot} == PLANTED
    assert compared(spark, live(left), live(right), tmp_path / "quiet")[1] == PLANTED


@contextlib.contextmanager
def _running(work: Callable[[], None], stop: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.mark.large
def test_a_resumed_diff_reads_nothing_again(
    spark: SparkSession, stores: Stores, tmp_path: Path
) -> None:
    left, right = planted(stores, "resumed")
    out = tmp_path / "run"

    def stop() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compared(spark, live(left), live(right), out, progress=Meddling(stop, early=True))
    before = {side: read_manifest(out / side).waves for side in ("left", "right")}
    change(left, {"n0/k000": b"after the position of the first run"})
    _, found = compared(spark, live(left), live(right), out, resume=True)
    after = {side: read_manifest(out / side).waves for side in ("left", "right")}
    assert found == PLANTED
    assert after["left"] == before["left"]
    assert after["right"][: len(before["right"])] == before["right"]
    with pytest.raises(UsageError, match="is done"):
        compared(spark, live(left), live(right), out, resume=True)


@pytest.mark.parametrize("full", others_large([False, True]))
def test_equal_stores_have_no_differences(
    spark: SparkSession, left: Path, stores: Stores, tmp_path: Path, *, full: bool
) -> None:
    other = stores.config("embedded", f"equal-{full}")
    fill(other, dict(reversed((SAME | PLANTED_LEFT).items())))
    report, found = compared(spark, live(left), live(other), tmp_path / "run", full=full)
    assert (report.ending, found, report.findings) == (JobEnding.DONE, {}, [])


@pytest.mark.large
def test_parts_are_compared(spark: SparkSession, left: Path, right: Path, tmp_path: Path) -> None:
    """Of an empty part there is not even a file to read."""
    whole = taken(spark, left, tmp_path / "l")
    part = SnapshotEndpoint("l", whole.folder, "n1")
    report, found = compared(spark, part, live(right, "n1"), tmp_path / "a")
    assert (found, report.counts["right_rows"]) == ({"n1/left": "only_left"}, 20)


@pytest.mark.usefixtures("form")
def test_p57_two_empty_sides_prove_nothing(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """A diff after a mistake in the names of namespaces is no proof that both are equal."""
    sides = live(left, "none"), live(right, "none")
    report, found = compared(spark, *sides, tmp_path / "a")
    assert (report.ending, found) == (JobEnding.FINDINGS, {})
    assert "neither side has a key" in report.findings[0]["detail"]
    report, found = compared(spark, *sides, tmp_path / "b", allow_empty=True)
    assert (report.ending, found, report.findings) == (JobEnding.DONE, {}, [])


def test_layouts_that_cannot_be_compared(
    spark: SparkSession, left: Path, right: Path, tmp_path: Path
) -> None:
    """Refused before anything is read or made."""
    out = tmp_path / "run"
    for first, second in ((f"raw:{left}", str(right)), (str(left), f"raw:{right}")):
        options = DiffOptions(left=parse_endpoint(first), right=parse_endpoint(second), out=out)
        with pytest.raises(UsageError, match="--into"):
            diff.run(spark, options)
    with pytest.raises(UsageError, match="--into"):
        diff.run(spark, DiffOptions(left=live(left), right=live(right), out=out, into="n"))
    assert not out.exists()
