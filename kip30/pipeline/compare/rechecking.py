"""Reading keys of live stores again that seem to differ: only unchanging keys count as different.

The order of the two reads proves that there was a moment at which the sides differed. Both scans
came before both reads. A side that still has the version that the scan saw had it all the time in
between; a side without the key had that at the moment of its read at least. So the side without
the key is read first: that moment lies within the time of the other side's version.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from kip30.driver import StorageDriver
from kip30.driver.records import Entry, Version
from kip30.errors import StoreError
from kip30.names import Key, parse_key
from kip30.pipeline.compare.comparison import LEFT, ONLY_LEFT, RIGHT, UNSETTLED
from kip30.pipeline.spark.worker_host import naming_worker
from kip30.pipeline.stores.config import StoreConfig

_BATCH = 500

Stores = Mapping[str, StoreConfig]
"""The live stores among the two sides, by the side's name."""


def settled(found: DataFrame, stores: Stores) -> DataFrame:
    """Return *found* with the kind "unsettled" for keys that a live side has otherwise by now.

    Args:
        found: Columns of `kip30.pipeline.compare.comparison`; its keys are those of kip30's
            storage.
        stores: What is read, linearizably, in the tasks.
    """
    if not stores:
        return found
    stores = dict(stores)
    return found.mapInArrow(lambda batches: settled_batches(batches, stores), found.schema)


class EntryReader:
    """Reads records of a store that is opened at the first use. One thread uses it at a time."""

    def __init__(self, config: StoreConfig, closer: ExitStack) -> None:
        """Read the store of *config* until *closer* closes it."""
        self._config = config
        self._closer = closer
        self._storage: StorageDriver | None = None

    def read(self, keys: Sequence[str]) -> list[Entry | StoreError | None]:
        """Return what is at each of *keys*: a record, nothing, or why it cannot be read as one.

        Raises:
            Kip30Error: The store does not answer.
        """
        found: list[Entry | StoreError | None] = []
        parsed = list(map(parse_key, keys))
        for first in range(0, len(parsed), _BATCH):
            found += self._read(parsed[first : first + _BATCH])
        return found

    def _read(self, keys: Sequence[Key]) -> Sequence[Entry | StoreError | None]:
        try:
            return self._open().read(keys).result()
        except StoreError as error:
            if len(keys) == 1:
                return [error]
            return [one for key in keys for one in self._read([key])]

    def _open(self) -> StorageDriver:
        if self._storage is None:
            with naming_worker():
                opened = self._config.resolve().open()
            backend = self._closer.enter_context(closing(opened))
            self._storage = backend.storage
        return self._storage


def settled_batches(batches: Iterable[pa.RecordBatch], stores: Stores) -> Iterator[pa.RecordBatch]:
    """Yield *batches* as `settled` does, in the task that calls it."""
    with ExitStack() as closer:
        readers = {side: EntryReader(config, closer) for side, config in stores.items()}
        for batch in batches:
            kinds = pa.array(_kinds(batch, readers), pa.string())
            yield batch.set_column(batch.schema.get_field_index("kind"), "kind", kinds)


def _kinds(batch: pa.RecordBatch, readers: Mapping[str, EntryReader]) -> list[str]:
    columns: dict[str, list[Any]] = {name: batch.column(name).to_pylist() for name in _READ}
    kinds = columns["kind"]
    lacking_right = [n for n, kind in enumerate(kinds) if kind == ONLY_LEFT]
    others = [n for n, kind in enumerate(kinds) if kind not in {ONLY_LEFT, UNSETTLED}]
    for numbers, order in ((lacking_right, (RIGHT, LEFT)), (others, (LEFT, RIGHT))):
        for side in order:
            if side in readers:
                entries = readers[side].read([columns["key"][n] for n in numbers])
                for n, entry in zip(numbers, entries, strict=True):
                    if not _has_version(entry, columns[f"{side}_version"][n]):
                        kinds[n] = UNSETTLED
    return kinds


_READ = ("key", "kind", "left_version", "right_version")


def _has_version(entry: Entry | StoreError | None, seen: Mapping[str, int] | None) -> bool:
    if entry is None or seen is None:
        return entry is None and seen is None
    return isinstance(entry, Entry) and entry.version == Version(**seen)
