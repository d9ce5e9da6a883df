"""The start of a feed: at the position of a snapshot, whose keys the journal knows then."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from kip30.driver.scanning import Layout, Position, Rejected, Row
from kip30.errors import StoreError, UsageError
from kip30.pipeline.follow.known_keys import Known, stamp
from kip30.pipeline.run.directory import read_manifest, verify_files
from kip30.pipeline.run.manifest import MIGRATE_JOB, SNAPSHOT_FOLDER, SNAPSHOT_JOB, Manifest
from kip30.pipeline.run.parquet_reading import batches
from kip30.pipeline.stores.endpoints import StoreEndpoint
from kip30.pipeline.stores.identity import check_same, identity_of, place_of
from kip30.pipeline.stores.path_mapping import Mapping, Skipped, parents

_REJECTED = ("rejected", "record", "prefix")


class Baseline:
    """A snapshot from which a feed of *source* continues.

    Attributes:
        position: The moment that the snapshot shows.
    """

    def __init__(
        self,
        run: Path,
        source: StoreEndpoint,
        into: str | None = None,
        target: StoreEndpoint | None = None,
    ) -> None:
        """Look at *run*, which is one of the job snapshot or migrate.

        Args:
            run: The folder of the run.
            source: The source of the feed.
            into: The namespace below which raw records become keys; None: they are not raw.
            target: The store that the feed writes to; None: files.

        Raises:
            UsageError: It is of another view than *source*, or it is a migration into another store
                than *target* or into other keys.
            StoreError: It is not done, or one of its files is missing or was changed.
            Kip30Error: *target* cannot be used.
        """
        self._folder = run
        manifest = read_manifest(run)
        if not manifest.done:
            raise StoreError(f"{run} is not done: finish it with --resume")
        if manifest.job == MIGRATE_JOB:
            if target is not None:
                _check_copy(manifest, target, into, run)
            self._folder = run / SNAPSHOT_FOLDER
            manifest = read_manifest(self._folder)
        if manifest.job != SNAPSHOT_JOB:
            raise UsageError(f"{run} is a run of {manifest.job}: name one of snapshot or migrate")
        _check_view(manifest, source, run)
        verify_files(self._folder, manifest)
        self._manifest = manifest
        self._key = "path" if source.layout is Layout.RAW else "key"
        self._into = into
        self.position: Position = Position(*manifest.source["position"])

    def states(self) -> Iterator[Known]:
        """Yield the keys of the snapshot."""
        if self._into is not None:
            found = self._mapped(self._into)
            yield from (one for one in found if isinstance(one, Known))
            return
        for batch in self._batches([self._key, "version", "modified", "rejected"]):
            yield from self._states(batch)

    def rejected(self) -> Iterator[Rejected]:
        """Yield what the snapshot could not read, or has no key for."""
        if self._into is not None:
            found = self._mapped(self._into)
            yield from (one for one in found if isinstance(one, Rejected))
            return
        for batch in self._batches([self._key, *_REJECTED]):
            yield from _rejected(batch)

    def _mapped(self, into: str) -> Iterator[Known | Rejected]:
        facts = self._manifest.source
        mapping = Mapping(into, facts["prefix"], is_tree=facts["is_tree"])
        above = set[bytes]()
        for batch in self._batches(["path"]) if facts["is_tree"] else ():
            paths: list[Any] = batch.column(0).to_pylist()
            above |= parents(paths)
        columns = ["path", "version", "modified", "value_bytes", "owner", *_REJECTED]
        for batch in self._batches(columns):
            yield from map(mapping.hidden_by, _rejected(batch))
            found: list[dict[str, Any]] = batch.to_pylist()
            for one in found:
                if one["rejected"] is None:
                    yield from _key_of(one, mapping, above)

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for file in self._manifest.files:
            yield from batches(self._folder / file.name, columns)

    def _states(self, batch: pa.RecordBatch) -> Iterator[Known]:
        keys = batch.column(self._key).cast(pa.binary()).to_pylist()
        version: Any = batch.column("version")
        parts: list[list[Any]] = [version.field(name).to_pylist() for name in ("major", "minor")]
        modified = batch.column("modified").to_pylist()
        rejected = batch.column("rejected").to_pylist()
        for key, major, minor, changed, reason in zip(
            keys, *parts, modified, rejected, strict=True
        ):
            if reason is None:
                yield Known(key, stamp(major, minor, changed))


def _check_copy(manifest: Manifest, target: StoreEndpoint, into: str | None, run: Path) -> None:
    """Return if the migration of *manifest* copied to *target*, and to the keys of the feed.

    Of the keys that it copied a feed writes only later changes.
    """
    advice = f"{run} cannot be followed: leave out --after, and the feed begins with all keys"
    if manifest.arguments.get("moves"):
        raise UsageError(f"{advice}. It moved keys to other namespaces (--map)")
    before: str | None = manifest.arguments.get("into")
    if before != into:
        raise UsageError(f"{advice}. Its --into is {before!r}, and not {into!r}")
    now = identity_of(target.config)
    if manifest.target not in {"", now}:  # older runs have none
        raise UsageError(f"{advice}. It wrote to {manifest.target}, and {target.text} is {now}")


def _rejected(batch: pa.RecordBatch) -> Iterator[Rejected]:
    """Yield the rejected rows of *batch*, whose first column is their place in the store."""
    places = batch.column(0).cast(pa.binary()).to_pylist()
    columns = (batch.column(name).to_pylist() for name in _REJECTED)
    for place, reason, record, prefix in zip(places, *columns, strict=True):
        if reason is not None:
            yield Rejected(place, reason, record, prefix)


def _key_of(
    one: dict[str, Any], mapping: Mapping, above: Collection[bytes]
) -> Iterator[Known | Rejected]:
    """Yield the key that the raw record *one* becomes, or why it has none although it needs one."""
    # The key depends on whether there is a value, and not on which.
    version, data = one["version"], b"any" if one["value_bytes"] else b""
    numbers = version["major"], version["minor"]
    row = Row(one["path"], data, *numbers, None, one["modified"], one["owner"])
    match mapping.key_of(row, has_children=row.key in above):
        case str() as key:
            yield Known(key.encode(), stamp(*numbers, row.modified))
        case Rejected() as refused:
            yield refused
        case Skipped():
            pass


def _check_view(manifest: Manifest, source: StoreEndpoint, run: Path) -> None:
    view = {"layout": source.layout.value, "under": source.under}
    check_same(manifest.source, place_of(source.config.resolve()) | view, str(run))
