"""Checks of the folder of a run without Spark: its state, and the integrity of its files."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kip30.errors import StoreError, UsageError
from kip30.pipeline.run.directory import (
    PLAN_NAME,
    file_damage,
    process_in,
    read_manifest,
    read_spans,
)
from kip30.pipeline.run.manifest import (
    DIFF_JOB,
    FEED_JOB,
    MANIFEST_NAME,
    MIGRATE_JOB,
    SNAPSHOT_FOLDER,
    SNAPSHOT_JOB,
    Manifest,
)


@dataclass(frozen=True, slots=True)
class CheckedFile:
    """A file that was checked.

    Attributes:
        path: The file.
        size: How many bytes the manifest says it has.
        damage: What is wrong with it; empty if nothing is.
    """

    path: Path
    size: int
    damage: str


def verify(folder: Path) -> Iterator[CheckedFile]:
    """Yield each file of the run in *folder*, and of runs that are parts of it, once it is read.

    Raises:
        UsageError: There is no run, it is not complete, or of a feed, which verifies its journal as
            it applies it.
        StoreError: The manifest of the run is damaged.
    """
    manifest = read_manifest(folder)
    if manifest.job == FEED_JOB:
        raise UsageError(f"{folder} is a run of {FEED_JOB}: it verifies its files as it runs")
    if not manifest.done:
        raise UsageError(f"{folder} is not done: finish it with --resume")
    yield from _files_of(folder, manifest)
    there = {one.parent.name for one in folder.glob(f"*/{MANIFEST_NAME}")}
    for part in sorted(there | set(_parts_of(manifest))):
        yield from _part(folder / part, manifest)


def _parts_of(manifest: Manifest) -> list[str]:
    """Return the folders of the runs that are parts of the run of *manifest*."""
    if manifest.job == MIGRATE_JOB:
        return [SNAPSHOT_FOLDER]
    if manifest.job == DIFF_JOB:
        # A side that is a snapshot has a folder elsewhere.
        return [side for side, facts in manifest.source.items() if "config" in facts]
    return []


def _part(folder: Path, whole: Manifest) -> Iterator[CheckedFile]:
    file = folder / MANIFEST_NAME
    try:
        manifest = read_manifest(folder)
    except UsageError:
        yield CheckedFile(file, 0, f"{file} is missing")
        return
    except StoreError as error:
        yield CheckedFile(file, 0, str(error))
        return
    if wrong := _misfit(manifest, whole):
        yield CheckedFile(file, 0, f"{file} is {wrong}")
    yield from _files_of(folder, manifest)


def _misfit(part: Manifest, whole: Manifest) -> str:
    """Return why *part* cannot be the part of the run of *whole*; empty if it can."""
    if part.job != SNAPSHOT_JOB:  # a side of a diff is never done
        return "" if part.planned == len(part.finished_spans) else "of a run that is not complete"
    if not part.done:
        return "of a snapshot that is not done"
    before = whole.source.get("snapshot")
    return "" if part.run == before else f"of the snapshot {part.run}, and not of {before}"


def _files_of(folder: Path, manifest: Manifest) -> Iterator[CheckedFile]:
    try:
        if manifest.planned is not None:
            read_spans(folder, manifest)
    except StoreError as error:
        yield CheckedFile(folder / PLAN_NAME, 0, str(error))
    for wave in manifest.waves:
        for file in wave.files:
            yield CheckedFile(folder / file.name, file.size, file_damage(folder, wave, file))


def status(folder: Path) -> dict[str, Any]:
    """Return the state and the progress of the run in *folder*.

    Raises:
        UsageError: There is no run.
        StoreError: The manifest is damaged.
    """
    manifest = read_manifest(folder)
    pid = process_in(folder)
    snapshot = _own_snapshot(folder)
    state = "done" if manifest.done else "stopped" if pid is None else "running"
    return {
        "job": manifest.job,
        "run": manifest.run,
        "state": state,
        "pid": pid,
        "created": manifest.created,
        "spans": len(manifest.finished_spans),
        "planned": manifest.planned,
        "rows": manifest.digest.rows,
        "bytes": sum(file.size for file in manifest.files),
        "counts": manifest.counts,
        "parts": [] if snapshot is None else [status(snapshot)],
    }


def _own_snapshot(folder: Path) -> Path | None:
    snapshot = folder / SNAPSHOT_FOLDER
    return snapshot if (snapshot / MANIFEST_NAME).exists() else None
