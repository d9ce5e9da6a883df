"""What the folder of a run says without Spark: its state, and whether its files are as written."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kip30.errors import UsageError
from kip30.pipeline.manifest import MANIFEST_NAME, SNAPSHOT_FOLDER
from kip30.pipeline.run_directory import file_damage, process_in, read_manifest, read_spans


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
        UsageError: It is not complete.
        StoreError: A manifest or a plan is missing or damaged.
    """
    manifest = read_manifest(folder)
    if not manifest.done:
        raise UsageError(f"{folder} is not done: finish it with --resume")
    parts = sorted(one.parent for one in folder.glob(f"*/{MANIFEST_NAME}"))
    runs = [(folder, manifest), *((part, read_manifest(part)) for part in parts)]
    for place, one in runs:
        if one.planned is not None:
            read_spans(place, one)
        for wave in one.waves:
            for file in wave.files:
                path = place / file.name
                yield CheckedFile(path, file.size, file_damage(place, wave, file))


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
