"""The manifest of a run: its purpose, and its progress.

Readers ignore files that the manifest does not list: a job lists a file after it has read it back.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath
from types import NoneType
from typing import Any

from kip30.errors import StoreError
from kip30.pipeline.run.checksums import checksum

MANIFEST_NAME = "manifest.json"
FORMAT = 4
"""1 had no checksums, 2 had none of the plan and of the manifest, 3 did not have the keys that a
rejected row hides."""
_HEAD_LINES = 3
_END = "\n}"
_DAMAGE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
SNAPSHOT_JOB = "snapshot"
"""The job whose run is a snapshot."""
SNAPSHOT_FOLDER = "snapshot"
"""Folder, in the run of another job, of the run of a snapshot that it takes itself."""
MIGRATE_JOB = "migrate"
"""The job that takes a snapshot itself."""
DIFF_JOB = "diff"
"""The job that reads each side that is a store into a run of its own."""
FEED_JOB = "feed"
"""The job whose run is never done."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of a wave.

    Attributes:
        name: Its path below the run directory.
        size: In bytes.
        checksum: `checksums.checksum_of` it.
    """

    name: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class Digest:
    """Identifies a set of rows, in any order.

    Attributes:
        rows: How many there are.
        total: The sum of their hashes.
        xor: The exclusive or of their hashes.
    """

    rows: int = 0
    total: int = 0
    xor: int = 0

    def __add__(self, other: "Digest") -> "Digest":
        """Return the digest of both sets together."""
        return Digest(self.rows + other.rows, self.total + other.total, self.xor ^ other.xor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """Spans that were read and entered together.

    Attributes:
        number: Which wave it is; its files are in the folder of that number.
        spans: The numbers of its spans in the plan.
        attempts: How many Spark jobs it took.
        digest: Of its records.
        counts: Numbers of the job's own, such as rejected keys, by name.
        files: Its files.
        seconds: How long its last attempt took.
    """

    number: int
    spans: tuple[int, ...]
    attempts: int
    digest: Digest
    counts: Mapping[str, int]
    files: tuple[DataFile, ...]
    seconds: float


@dataclass(slots=True, kw_only=True)
class Manifest:
    """All that is known of a run.

    Attributes:
        job: Which job it is of.
        run: The run's id: a UUID whose beginning grows with time.
        arguments: What the job was called with, as far as it decides the result.
        created: When it began, in seconds since 1970.
        versions: Of kip30, Spark, Python.
        source: What is read: store or snapshot, layout, part, position, consistency.
        target: Which store is written to; empty if none is, or if it has no identity.
        planned: How many spans there are; None until the plan is complete.
        plan_checksum: That of the plan's file; empty until the plan is complete.
        waves: What is done.
        counts: Totals of the job's own, by name.
        reported: What the last report of a feed said of them, so that the next one says the rest.
        unreported: The keys to look at that a feed found since, as its report names them.
        done: Whether the run has ended. A manifest that is done never changes.
    """

    job: str
    run: str
    arguments: dict[str, Any]
    created: float
    versions: dict[str, str]
    source: dict[str, Any] = field(default_factory=dict[str, Any])
    target: str = ""
    planned: int | None = None
    plan_checksum: str = ""
    waves: list[Wave] = field(default_factory=list[Wave])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    reported: dict[str, int] = field(default_factory=dict[str, int])
    unreported: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    done: bool = False

    @property
    def digest(self) -> Digest:
        """The digest of all waves."""
        return sum((wave.digest for wave in self.waves), Digest())

    @property
    def files(self) -> list[DataFile]:
        """The files of all waves."""
        return [file for wave in self.waves for file in wave.files]

    @property
    def finished_spans(self) -> frozenset[int]:
        """The numbers of the spans that are done."""
        return frozenset(span for wave in self.waves for span in wave.spans)

    @property
    def next_wave(self) -> int:
        """A number that no wave has had."""
        return max((wave.number for wave in self.waves), default=-1) + 1

    def total(self, count: str) -> int:
        """Return the sum of the waves' *count*."""
        return sum(wave.counts.get(count, 0) for wave in self.waves)

    def to_json(self) -> str:
        """Return the text that `of_json` reads."""
        return with_checksum(asdict(self))

    @classmethod
    def of_json(cls, text: str, name: str) -> "Manifest":
        """Return the manifest that *text* holds; *name* is its file's, for errors.

        Raises:
            StoreError: It is no manifest, or of another format.
        """
        try:
            found = json.loads(text)
            number = found.pop("format")
            if number == FORMAT:
                del found["checksum"]
                _verify_checksum(text)
                _check_kinds(found)
                waves: Any = [_wave(one) for one in found["waves"]]
                return cls(**(found | {"waves": waves}))
        except _DAMAGE as error:
            raise StoreError(f"{name} is damaged, or not a manifest of kip30: {error}") from error
        raise StoreError(
            f"{name} has the format {number!r}: this kip30 reads format {FORMAT}; read it with the"
            " kip30 that wrote it, or begin another run"
        )


def with_checksum(fields: Mapping[str, Any]) -> str:
    """Return the text of a manifest with *fields*.

    Its first lines are the format and the checksum of all lines after them.
    """
    _, rest = json.dumps(fields, indent=1).split("\n", 1)
    head = json.dumps({"format": FORMAT, "checksum": checksum(rest.encode())}, indent=1)
    return f"{head[: -len(_END)]},\n{rest}"


def _verify_checksum(text: str) -> None:
    """Compare the text, because a digit may change and the number stay the same."""
    *head, rest = text.split("\n", _HEAD_LINES)
    if len(head) != _HEAD_LINES or head[-1] != f' "checksum": "{checksum(rest.encode())}",':
        raise ValueError("its checksum differs")


def _wave(found: dict[str, Any]) -> Wave:
    parts: dict[str, Any] = {
        "spans": tuple(found["spans"]),
        "digest": Digest(**found["digest"]),
        "files": tuple(_file(**one) for one in found["files"]),
    }
    return Wave(**(found | parts))


def _file(name: str, size: int, checksum: str) -> DataFile:  # as the fields are named
    """Return a file, which must be below the run directory: manifests may come from others."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"the file {name!r} is outside of the folder")
    return DataFile(name, size, checksum)


_KINDS: dict[str, tuple[type, ...]] = {
    "job": (str,),
    "run": (str,),
    "arguments": (dict,),
    "source": (dict,),
    "planned": (int, NoneType),
    "waves": (list,),
    "counts": (dict,),
    "done": (bool,),
}
"""Fields that decide about resuming and reading must not be mistaken for others."""


def _check_kinds(found: dict[str, Any]) -> None:
    for name, kinds in _KINDS.items():
        if type(found[name]) not in kinds:
            raise TypeError(f"{name} is {found[name]!r}")
