"""The next reader of a run finds a bit that changed anywhere in it, and names the file."""

import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kip30 import StoreError, UsageError
from kip30.driver.scanning import Layout, Position
from kip30.pipeline.compare import diff, repair
from kip30.pipeline.follow import feed
from kip30.pipeline.follow.journal import Journal
from kip30.pipeline.follow.journal_rows import JournalPosition, JournalRow
from kip30.pipeline.run.checks import verify
from kip30.pipeline.run.directory import RunDirectory, read_manifest
from kip30.pipeline.run.manifest import MANIFEST_NAME, DataFile
from kip30.pipeline.run.report import JobEnding
from kip30.pipeline.stores.endpoints import SnapshotEndpoint, parse_endpoint, target_endpoint
from kip30.pipeline.transfer import restore_and_migrate, snapshot

from .manifests import edit_manifest
from .stores import contents, fill
from .test_restore import embedded, endpoint

PLACES = 200
CHANCE = random.Random(1)  # noqa: S311  where bits change
LEFT = {f"n/k{number:03}": CHANCE.randbytes(40) for number in range(60)}
RIGHT = {f"n/k{number:03}": b"other" for number in range(50, 70)}


@pytest.fixture(scope="module")
def runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run of each job that leaves files, and the stores of them."""
    top = tmp_path_factory.mktemp("runs")
    left, right, copy = (embedded(top, name) for name in ("left", "right", "copy"))
    fill(left, LEFT)
    fill(right, RIGHT)
    source = endpoint(left)
    ended = [
        snapshot.run(
            spark, snapshot.SnapshotOptions(source=source, out=top / "snapshot.run", span_rows=10)
        ),
        restore_and_migrate.run(
            spark,
            restore_and_migrate.RestoreOptions(
                source=source, target=endpoint(copy), out=top / "migrate.run", span_rows=10
            ),
        ),
        diff.run(spark, diff.DiffOptions(left=source, right=endpoint(right), out=top / "diff.run")),
        repair.run(spark, repair.RepairOptions(diff=top / "diff.run", out=top / "repair.run")),
    ]
    assert {one.ending for one in ended} <= {JobEnding.DONE, JobEnding.FINDINGS}
    return top


@pytest.fixture
def flipped(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    """Return what changes one bit in the middle of a file until the test is over."""

    def flip(file: Path) -> None:
        data = file.read_bytes()
        request.addfinalizer(lambda: file.write_bytes(data))
        file.write_bytes(with_flipped_bit(data, len(data) // 2))

    return flip


def with_flipped_bit(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1 << CHANCE.randrange(8)]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("run", "part"), [("migrate.run", "snapshot"), ("diff.run", "left"), ("diff.run", "right")]
)
def test_a_part_of_a_run_that_is_missing_is_found(
    runs: Path, tmp_path: Path, run: str, part: str
) -> None:
    """All values are in the parts, so without them nothing is verified."""
    copy = tmp_path / "copy"
    shutil.copytree(runs / run, copy)
    assert not damage_of(copy).strip()
    (copy / part / MANIFEST_NAME).rename(tmp_path / "manifest")
    assert damage_of(copy).strip() == f"{copy / part / MANIFEST_NAME} is missing"
    shutil.rmtree(copy / part)
    assert damage_of(copy).strip() == f"{copy / part / MANIFEST_NAME} is missing"


def test_a_part_of_a_run_that_is_another_one_is_found(runs: Path, tmp_path: Path) -> None:
    copy, part = tmp_path / "copy", tmp_path / "copy" / "snapshot"
    shutil.copytree(runs / "migrate.run", copy)
    edit_manifest(part, lambda fields: fields.update(done=False))
    assert "is of a snapshot that is not done" in damage_of(copy)
    shutil.rmtree(part)
    shutil.copytree(runs / "snapshot.run", part)
    other, own = (read_manifest(runs / run) for run in ("snapshot.run", "migrate.run"))
    expected = f"is of the snapshot {other.run}, and not of {own.source['snapshot']}"
    assert expected in damage_of(copy)


def test_a_side_of_a_diff_that_is_not_complete_is_found(runs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(runs / "diff.run", copy)
    edit_manifest(copy / "left", lambda fields: fields.update(waves=[]))
    assert "left/manifest.json is of a run that is not complete" in damage_of(copy)


def damage_of(run: Path) -> str:
    """Return what `verify` has to say of *run*."""
    try:
        return " ".join(one.damage for one in verify(run))
    except StoreError as error:
        return str(error)


def test_two_hundred_bits_anywhere(runs: Path) -> None:
    folders = sorted(runs.glob("*.run"))
    assert [damage_of(one).strip() for one in folders] == [""] * 4
    files = [
        (folder, file)
        for folder in folders
        for file in sorted(folder.rglob("*"))
        # A report is for people and programs: no job reads it.
        if file.suffix in {".parquet", ".json", ".jsonl"} and file.name != "report.json"
    ]
    assert {file.suffix for _, file in files} == {".parquet", ".json", ".jsonl"}
    for _ in range(PLACES):
        folder, file = CHANCE.choice(files)
        data = file.read_bytes()
        damaged = with_flipped_bit(data, CHANCE.randrange(len(data)))
        file.write_bytes(damaged)
        try:
            assert str(file) in damage_of(folder), damaged
        finally:
            file.write_bytes(data)
    assert [damage_of(one).strip() for one in folders] == [""] * 4


@pytest.mark.parametrize("of", ["diff.run", "repair.run"])
def test_a_repair_follows_no_damaged_file(
    spark: SparkSession, runs: Path, tmp_path: Path, flipped: Callable[[Path], None], of: str
) -> None:
    wave, *_ = read_manifest(runs / of).waves
    file = runs / of / wave.files[0].name
    flipped(file)
    options = repair.RepairOptions(
        diff=runs / "diff.run", plan=runs / "repair.run", out=tmp_path / "out", apply=True
    )
    with pytest.raises(StoreError, match=file.name):
        repair.run(spark, options)
    assert contents(runs / "right.properties", list(RIGHT)) == RIGHT


def test_a_feed_begins_at_no_damaged_snapshot(
    spark: SparkSession, runs: Path, tmp_path: Path, flipped: Callable[[Path], None]
) -> None:
    wave, *_ = read_manifest(runs / "snapshot.run").waves
    file = runs / "snapshot.run" / wave.files[0].name
    flipped(file)
    options = feed.FeedOptions(
        source=endpoint(runs / "left.properties"),
        target=endpoint(runs / "copy.properties"),
        out=tmp_path / "out",
        once=True,
        after=runs / "snapshot.run",
    )
    with pytest.raises(StoreError, match=file.name):
        feed.run(spark, options)


def test_a_diff_that_goes_on_compares_no_damaged_side(
    spark: SparkSession, runs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "diff"
    shutil.copytree(runs / "diff.run", out)
    edit_manifest(out, lambda fields: fields.update(done=False, waves=[], counts={}))
    wave, *_ = read_manifest(out / "left").waves
    file = out / "left" / wave.files[0].name
    file.write_bytes(with_flipped_bit(file.read_bytes(), 100))
    options = diff.DiffOptions(
        left=endpoint(runs / "left.properties"),
        right=endpoint(runs / "right.properties"),
        out=out,
        resume=True,
    )
    report = diff.run(spark, options)
    assert report.ending is JobEnding.INCOMPLETE
    assert str(file) in report.reason


def test_damage_to_files_from_spark_is_detected_on_reading_back(
    spark: SparkSession, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files_in = RunDirectory.files_in

    def damaged(self: RunDirectory, folder: Path) -> tuple[DataFile, ...]:
        for file in folder.glob("*.parquet"):
            file.write_bytes(with_flipped_bit(file.read_bytes(), 40))
        return files_in(self, folder)

    monkeypatch.setattr(RunDirectory, "files_in", damaged)
    options = repair.RepairOptions(diff=runs / "diff.run", out=tmp_path / "out")
    with pytest.raises(StoreError, match="cannot be read back"):
        repair.run(spark, options)


def test_a_damaged_note_of_a_journal_is_forgotten(tmp_path: Path) -> None:
    """The position of the last segment counts then, and changes are read once more."""
    journal = Journal(tmp_path, Layout.KIP30)
    first, later = (JournalPosition(at=Position("s", at)) for at in ("100", "108"))
    journal.append([], first)
    journal.note(later)
    noted = Journal(tmp_path, Layout.KIP30).position
    assert noted is not None
    assert noted.at == later.at
    file = tmp_path / "reached.json"
    file.write_text(file.read_text().replace("108", "109"))
    known = Journal(tmp_path, Layout.KIP30).position
    assert known is not None
    assert known.at == first.at


def test_a_run_without_files_of_its_own_is_not_verified(
    spark: SparkSession, runs: Path, tmp_path: Path
) -> None:
    options = feed.FeedOptions(
        source=endpoint(runs / "left.properties"),
        target=None,
        out=tmp_path / "out",
        once=True,
    )
    feed.run(spark, options)
    with pytest.raises(UsageError, match="a run of feed"):
        list(verify(tmp_path / "out"))


def test_a_segment_of_a_feed_is_not_applied_if_it_is_damaged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = embedded(tmp_path, "source"), embedded(tmp_path, "target")
    fill(source, {f"n/k{number}": b"v" * 4000 for number in range(20)})
    append = Journal.append

    def damaged(self: Journal, entries: Sequence[JournalRow], position: JournalPosition) -> None:
        append(self, entries, position)
        file = self.file_of(self.segment)
        data = file.read_bytes()
        file.write_bytes(with_flipped_bit(data, len(data) // 3))

    monkeypatch.setattr(Journal, "append", damaged)
    options = feed.FeedOptions(
        source=endpoint(source),
        target=target_endpoint(parse_endpoint(str(target))),
        out=tmp_path / "out",
        once=True,
    )
    report = feed.run(spark, options)
    assert report.ending is not JobEnding.DONE
    assert "segment" in report.reason
    assert contents(target, ["n/k0"]) == {}


def test_a_snapshot_with_a_damaged_manifest_is_no_snapshot(
    runs: Path, flipped: Callable[[Path], None]
) -> None:
    flipped(runs / "snapshot.run" / MANIFEST_NAME)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        read_manifest(SnapshotEndpoint("x", runs / "snapshot.run", "").folder)
