"""Reading a view of a live store in the waves of a run: its position, plan and tasks."""

import json
import shutil
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import SparkSession

from kip30.driver.scanning import Layout, Position, Row, ScanDriver, Span, View
from kip30.names import unescape
from kip30.pipeline.run.directory import RunDirectory, write_whole
from kip30.pipeline.run.waves import partitions
from kip30.pipeline.spark.session import slots
from kip30.pipeline.spark.source import ScanOptions
from kip30.pipeline.spark.wave_files import ScanTasks
from kip30.pipeline.stores.endpoints import StoreEndpoint
from kip30.pipeline.stores.identity import PLACE, check_same, open_source, place_of

_SCRATCH = "scratch"
_CLAIMS = "claims.jsonl"
_EPOCH = "epoch"


class ViewReader:
    """One view, read for one run. The run's manifest remembers the position and what it means."""

    def __init__(
        self,
        spark: SparkSession,
        endpoint: StoreEndpoint,
        directory: RunDirectory,
        *,
        span_rows: int,
        request_seconds: float | None = None,
    ) -> None:
        """Read *endpoint* in spans of about *span_rows* rows."""
        self._spark = spark
        self._endpoint = endpoint
        self._run = directory
        self._span_rows = span_rows
        self._request_seconds = request_seconds
        self._scratch = directory.path / _SCRATCH

    def begin(self) -> None:
        """Take a position, plan, and note both in the run; a run that has a plan keeps it.

        Raises:
            UsageError: The run was begun with another store, or another namespace of it.
        """
        if self._run.manifest.planned is not None:
            now = place_of(self._endpoint.config.resolve())
            check_same(self._run.manifest.source, now, self._endpoint.text)
            return
        shutil.rmtree(self._scratch, ignore_errors=True)  # of a driver that ended before its plan
        self._scratch.mkdir(mode=0o700)
        self._run.manifest.source = dict(place_of(self._endpoint.config.resolve()))
        with self._open() as store:
            at = store.position()
            spans = list(store.plan(at, self._span_rows))
            self._run.manifest.source |= self._facts(store, at)
        self._run.save_plan(spans)

    def tasks(self, spans: Sequence[Span]) -> ScanTasks:
        """Return the scan of *spans* by about as many tasks as run at a time."""
        options = ScanOptions(
            self._endpoint.config,
            self._endpoint.view(self._scratch),
            request_seconds=self._request_seconds,
            noted=self._place,
        )
        return ScanTasks(options, self._position, partitions(spans, slots(self._spark)))

    def finish(self) -> None:
        """Note the position at the end, and delete what the store kept for this run."""
        with self._open() as store:
            if not store.needs_scratch:
                self._run.manifest.source["until"] = list(store.position())
        shutil.rmtree(self._scratch, ignore_errors=True)

    def note_claims(self, *, show: bool) -> None:
        """Note the epochs, which no job copies; with *show* write down all claims for people.

        A run that has noted them keeps them.
        """
        if "epochs" in self._run.manifest.source:
            return
        with self._open(View(layout=Layout.CLAIMS, scratch=self._scratch)) as store:
            # A position belongs to its view. But a store that copies has both in one copy.
            at = self._position if store.needs_scratch else store.position()
            claims = [_claim(row) for row in _rows(store, at)]
        self._run.manifest.source["epochs"] = {
            "/".join(one["names"]): int(one["version"]) for one in claims if one["kind"] == _EPOCH
        }
        if show:
            lines = map(json.dumps, claims)
            write_whole(self._run.path / _CLAIMS, "".join(f"{line}\n" for line in lines))
        self._run.save()

    @property
    def _place(self) -> dict[str, str]:
        return {name: self._run.manifest.source[name] for name in PLACE}

    @property
    def _position(self) -> Position:
        return Position(*self._run.manifest.source["position"])

    def _open(self, view: View | None = None) -> ScanDriver:
        return open_source(
            self._endpoint.config,
            view or self._endpoint.view(self._scratch),
            self._place,
            request_seconds=self._request_seconds,
        )

    def _facts(self, store: ScanDriver, at: Position) -> dict[str, Any]:
        return {
            "endpoint": self._endpoint.text,
            "layout": self._endpoint.layout.value,
            "under": self._endpoint.under,
            "position": list(at),
            "consistency": store.consistency.value,
            "is_tree": store.is_tree,
            "prefix": self._endpoint.under if store.under_is_prefix else "",
        }


def _rows(store: ScanDriver, at: Position) -> Iterator[Row]:
    for span in store.plan(at, 1_000_000):
        for page in store.scan(span, at):
            yield from page.rows


def _claim(row: Row) -> dict[str, Any]:
    kind, *names = row.key.decode().split("/")
    return {
        "kind": kind,
        "names": list(map(unescape, names)),
        "version": f"{row.major}.{row.minor}" if row.minor else str(row.major),
        "owner": row.owner,
        "bytes": None if row.data is None else len(row.data),
    }
