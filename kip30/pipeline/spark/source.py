"""Reading in bulk: ``spark.read.format("kip30").option("config", FILE).load()``.

Options: *config*, a properties file (else *store*, a configuration in the words of `StoreConfig`);
*layout* (kip30, raw, claims); *under*; *rows*, the size of a span; *request.seconds*.

Filters are not pushed down: Spark 4.1 to 4.3 applies a filter that was pushed down to the next
query of the same DataFrame, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from typing_extensions import override

from kip30.driver.scanning import Layout, Position, ScanDriver, Span, View
from kip30.errors import UsageError
from kip30.pipeline.spark.arrow_pages import batches
from kip30.pipeline.spark.worker_host import naming_worker
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.identity import open_source

FORMAT = "kip30"
SPAN_ROWS = 20_000
_OPTIONS = {"config", "store", "layout", "under", "rows", "request.seconds", "scratch"}


def store_of(options: Mapping[str, str]) -> StoreConfig:
    """Return the store that *options* of a read or a write name.

    Raises:
        UsageError: They name none.
    """
    if "store" in options:
        return StoreConfig.parse(options["store"])
    if "config" in options:
        return StoreConfig.of_file(Path(options["config"]))
    raise UsageError(f"the format {FORMAT} takes the option 'config', a properties file")


@dataclass(frozen=True)
class ScanOptions:
    """Parsed options of a read.

    Attributes:
        config: The store.
        view: The part of it.
        rows: About how many rows a span has.
        request_seconds: How long a request may take; None: the store's operation timeout.
        noted: What the run has noted of its source, which it must still be; None: there is no run.
    """

    config: StoreConfig
    view: View
    rows: int = SPAN_ROWS
    request_seconds: float | None = None
    noted: Mapping[str, Any] | None = None

    def texts(self) -> dict[str, str]:
        """Return the options that `parse` reads."""
        texts = {"store": self.config.text(), "layout": self.view.layout.value}
        texts |= {"under": self.view.under, "rows": str(self.rows)}
        if self.view.scratch is not None:
            texts["scratch"] = str(self.view.scratch)
        if self.request_seconds is not None:
            texts["request.seconds"] = str(self.request_seconds)
        return texts

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "ScanOptions":
        """Return the meaning of *options*, whose names Spark compares without regard to case.

        Raises:
            UsageError: No store is named, or a value is wrong.
        """
        if unknown := {*map(str.lower, options)} - _OPTIONS:
            raise UsageError(
                f"the source {FORMAT} has no option {', '.join(sorted(unknown))}; it has"
                f" {', '.join(sorted(_OPTIONS))}"
            )
        seconds = options.get("request.seconds")
        scratch = options.get("scratch")
        try:
            layout = Layout(options.get("layout", Layout.KIP30.value))
            rows = int(options.get("rows", SPAN_ROWS))
            request_seconds = None if seconds is None else float(seconds)
        except ValueError as error:
            raise UsageError(f"an option of the source {FORMAT} is wrong: {error}") from error
        return cls(
            store_of(options),
            View(
                layout=layout,
                under=options.get("under", ""),
                scratch=None if scratch is None else Path(scratch),
            ),
            rows,
            request_seconds,
        )

    def open(self) -> ScanDriver:
        """Open the store for the scan; raises as `open_source`."""
        return open_source(self.config, self.view, self.noted, request_seconds=self.request_seconds)

    def batches(self, at: Position | None, spans: Sequence[Span]) -> Iterator[pa.RecordBatch]:
        """Yield the records of *spans* as of *at*, a page at a time; None: all, as of now.

        Raises:
            Kip30Error: The store cannot be read.
        """
        with naming_worker(), self.open() as store:
            wanted = iter(spans)
            if at is None:
                at = store.position()
                wanted = store.plan(at, self.rows)
            for span in wanted:
                for page in store.scan(span, at):
                    yield from batches(page, store.changed_since(page, at), self.view.layout)


class _Partition(InputPartition):
    """The spans that one task reads; None: it plans for itself, and reads all."""

    def __init__(self, at: Position | None, spans: list[Span]) -> None:
        super().__init__((at, spans))
        self.at = at
        self.spans = spans


class Kip30Reader(DataSourceReader):
    """Plans, and reads."""

    def __init__(self, options: ScanOptions) -> None:
        """Read as *options* say."""
        self._options = options

    @override
    def partitions(self) -> Sequence[InputPartition]:
        """Return the partitions that the tasks read. Spark asks once for each ``load()``."""
        with self._options.open() as store:
            if store.needs_scratch and self._options.view.scratch is None:
                return [_Partition(None, [])]
            at = store.position()
            return [_Partition(at, [span]) for span in store.plan(at, self._options.rows)] or [
                _Partition(at, [])
            ]

    @override
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of *partition*, a page at a time."""
        assert isinstance(partition, _Partition)  # noqa: S101  what `partitions` returned
        return self._options.batches(partition.at, partition.spans)
