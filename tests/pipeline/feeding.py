"""Shared code of the tests of tails and feeds: a view, its tail, and the rows of its journal."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from kip30 import BYTES, OutcomeUnknownError, PluginLocator, Storage
from kip30.driver.records import Version
from kip30.driver.scanning import Layout, Position, ScanDriver, View
from kip30.pipeline.follow.journal import Journal
from kip30.pipeline.follow.journal_rows import journal_schema
from kip30.pipeline.follow.known_keys import KnownKeys
from kip30.pipeline.follow.tail import Tail, TailFiles, TailSettings, begin_at
from kip30.pipeline.stores.mapped_scanner import MappedScanner
from kip30.runtime.resolution import scanner
from kip30_conformance.polling import eventually

T = TypeVar("T")
Rows = list[dict[str, Any]]


@contextmanager
def storage_of(config: Path) -> Iterator[Storage[bytes]]:
    """Open the storage that *config* means."""
    with PluginLocator().startup(config) as locator:
        yield locator.storage(BYTES)


def acknowledged(call: Callable[[], T]) -> T:
    """Repeat *call* until the store answers; `eventually` does so when it is unavailable."""

    def answer() -> tuple[T] | None:
        try:
            return (call(),)
        except OutcomeUnknownError:
            return None

    return eventually(answer, within=180)[0]


def version_of(storage: Storage[bytes], key: str) -> Version:
    found = storage.get(key)
    assert found is not None
    return found.version


def position_of(config: Path) -> Position:
    with scanner(config, View()) as store:
        return store.position()


def journal_rows(folder: Path) -> Rows:
    """Return the rows of a journal's segments, in the order of the segments."""
    files = sorted(folder.glob("[0-9]*.parquet"))
    tables = [pq.read_table(file, schema=journal_schema(Layout.KIP30)) for file in files]
    rows: Rows = pa.concat_tables(tables).to_pylist() if tables else []
    first = rows[0]["number"] if rows else 0
    assert [row["number"] for row in rows] == list(range(first, first + len(rows)))
    return rows


def rejected_in(folder: Path) -> list[bytes]:
    """Return the keys that the tail in *folder* could not read."""
    known = KnownKeys(folder / "known.db")
    try:
        found = [one.key for one in known.first_rejected(1_000)]
        assert len(found) == known.count_rejected()
        return found
    finally:
        known.close()


def changes_of(rows: Rows) -> list[tuple[str, bytes | None]]:
    """Return key and value of each change, in order."""
    ordered = sorted(rows, key=lambda row: int(row["number"]))
    return [(row["key"], row["value"]) for row in ordered if row["kind"] == "change"]


def states(rows: Rows) -> dict[str, bytes]:
    """Return the values of all keys after *rows*."""
    last = dict(changes_of(rows))
    return {key: value for key, value in last.items() if value is not None}


def gaps(rows: Rows) -> int:
    return sum(row["kind"] == "gap" for row in rows)


def repeated(rows: Rows) -> list[tuple[str, Mapping[str, int]]]:
    """Return keys and versions that are in *rows* twice."""
    seen: set[tuple[str, int, int]] = set()
    found = []
    for row in rows:
        if row["version"] is not None:
            one = (row["key"], row["version"]["major"], row["version"]["minor"])
            if one in seen:
                found.append((row["key"], row["version"]))
            seen.add(one)
    return found


@contextmanager
def tail_in(  # noqa: PLR0913  each test gives few of them
    folder: Path,
    config: Path,
    *,
    after: Position | None = None,
    under: str = "",
    into: str | None = None,
    settings: TailSettings | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Iterator[Tail]:
    """Open a tail with its files in *folder*; a new one begins at *after*.

    With *into* it reads raw records, as keys below that namespace.
    """

    def opened(scratch: Path) -> ScanDriver:
        layout = Layout.KIP30 if into is None else Layout.RAW
        found = scanner(config, View(under=under, layout=layout, scratch=scratch))
        return found if into is None else MappedScanner(found, into, under)

    folder.mkdir(exist_ok=True)
    known = KnownKeys(folder / "known.db")
    files = TailFiles(
        journal=Journal(folder / "journal", Layout.KIP30), known=known, scratch=folder / "scratch"
    )
    if files.journal.segment < 0:
        begin_at(files, after)
    tail = Tail(
        files,
        opened,
        settings=settings or TailSettings(),
        stopped=stopped,
    )
    try:
        yield tail
    finally:
        tail.close()
        known.close()
