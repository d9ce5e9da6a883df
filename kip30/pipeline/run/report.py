"""Reports on how jobs ended, for people and for programs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from kip30.pipeline.run.directory import RunDirectory, write_whole
from kip30.pipeline.run.manifest import Manifest, Wave

JSON_NAME = "report.json"
MOST_FINDINGS = 1_000
"""Maximum number of keys that a report names."""


class JobEnding(Enum):
    """The ending of a job."""

    DONE = "done"
    """All is done, and there is nothing to look at."""
    FINDINGS = "findings"
    """All is done, and there are rejected keys, conflicts or differences."""
    INCOMPLETE = "incomplete"
    """It stopped before its end: the same call with ``--resume`` continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of a job.

    Attributes:
        job: Which job.
        run: The id of its run.
        ending: Its ending.
        counts: Its counts, by name; of a feed, those of this call.
        totals: The counts of all calls of a feed together, by name.
        facts: Further facts, by name: store, position, consistency.
        waves: A record for each wave: rows, bytes, seconds.
        findings: Up to `MOST_FINDINGS` keys to look at, each with the problem.
        reason: Why it is incomplete.
    """

    job: str
    run: str
    ending: JobEnding
    counts: Mapping[str, int] = field(default_factory=dict[str, int])
    totals: Mapping[str, int] = field(default_factory=dict[str, int])
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    waves: Sequence[Mapping[str, Any]] = ()
    findings: Sequence[Mapping[str, str]] = ()
    reason: str = ""

    @classmethod
    def of(
        cls,
        manifest: Manifest,
        ending: JobEnding,
        findings: Sequence[Mapping[str, str]] = (),
        reason: str = "",
    ) -> "Report":
        """Return the report on the run of *manifest*."""
        return cls(
            job=manifest.job,
            run=manifest.run,
            ending=ending,
            counts=manifest.counts,
            facts=manifest.source,
            waves=[_wave(one) for one in manifest.waves],
            findings=findings,
            reason=reason,
        )

    def record(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        return {**asdict(self), "ending": self.ending.value}


def save_report(folder: Path, report: Report) -> None:
    """Replace the file of *report* for programs in *folder*; it survives a crash of the machine."""
    write_whole(folder / JSON_NAME, json.dumps(report.record(), indent=1) + "\n")


def conclude(directory: RunDirectory, report: Report) -> Report:
    """Save *report*, note that its run is done, and return it.

    In this order, because a run that is done cannot be resumed: no later call would report it.
    """
    save_report(directory.path, report)
    directory.manifest.done = True
    directory.save()
    return report


def _wave(wave: Wave) -> dict[str, Any]:
    return {
        "wave": wave.number,
        "rows": wave.digest.rows,
        "bytes": sum(file.size for file in wave.files),
        "seconds": round(wave.seconds, 3),
        "attempts": wave.attempts,
        **wave.counts,
    }
