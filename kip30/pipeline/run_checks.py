"""What the folder of a run says without Spark: its state, and whether its files are as written."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import Any

from kip30.errors import UsageError
from kip30.pipeline.manifest import (
    MANIFEST_NAME,
    SNAPSHOT_FOLDER,
    SNAPSHOT_JOB,
    DataFile,
    Manifest,
    Wave,
)
from kip30.pipeline.run_directory import process_in, read_manifest

CHECKSUM_BYTES = 16


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


def checksum_of(file: Path) -> str:
    """Return what any change of *file* changes."""
    with file.open("rb") as opened:
        return file_digest(opened, lambda: blake2b(digest_size=CHECKSUM_BYTES)).hexdigest()


def checked_files(folder: Path, manifest: Manifest) -> Iterator[CheckedFile]:
    """Yield each file of *manifest* that has a checksum, once it has been read."""
    for wave in manifest.waves:
        for file in wave.files:
            if file.checksum:
                yield _checked(folder, wave, file)


def verify(folder: Path) -> Iterator[CheckedFile]:
    """Yield each file of the snapshot in *folder*, of the job snapshot or migrate, once it is read.

    Raises:
        UsageError: It is the folder of another job, or of a snapshot that is not complete.
        StoreError: The manifest is missing or damaged.
    """
    place = _own_snapshot(folder) or folder
    manifest = read_manifest(place)
    if manifest.job != SNAPSHOT_JOB:
        raise UsageError(f"{folder} is a run of {manifest.job}, which has no snapshot")
    if not manifest.done:
        raise UsageError(f"{place} is not done: finish it with --resume")
    yield from checked_files(place, manifest)


def status(folder: Path) -> dict[str, Any]:
    """Return how far the run in *folder* is.

    Raises:
        StoreError: The manifest is missing or damaged.
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
        "bytes": sum(file.size for wave in manifest.waves for file in wave.files),
        "counts": manifest.counts,
        "parts": [] if snapshot is None else [status(snapshot)],
    }


def _own_snapshot(folder: Path) -> Path | None:
    snapshot = folder / SNAPSHOT_FOLDER
    return snapshot if (snapshot / MANIFEST_NAME).exists() else None


def _checked(folder: Path, wave: Wave, file: DataFile) -> CheckedFile:
    path, damage = folder / file.name, ""
    try:
        if checksum_of(path) != file.checksum:
            damage = f"{path}, of wave {wave.number}, is not as it was written"
    except OSError as error:
        damage = f"{path}, of wave {wave.number}, cannot be read: {error.strerror}"
    return CheckedFile(path, file.size, damage)
