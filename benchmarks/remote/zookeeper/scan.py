"""The nodes of a scan by kazoo alone, which cannot read many nodes with one request."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from benchmarks.pipeline.replay import RawScan, noting
from benchmarks.remote.zookeeper.client import connected
from benchmarks.store_address import StoreAddress
from kip30_backends.zookeeper.scan_reader import Reader

_RECORD_DEPTH = 4


class BareScan(RawScan):
    """The same paths, a page of them in flight at once: the quickest that kazoo offers."""

    def __init__(self, address: StoreAddress) -> None:
        self._client = connected(address)
        self._pages: list[Sequence[str]] = []
        self._parents: list[Sequence[str]] = []

    @override
    @contextmanager
    def recording(self) -> Generator[None]:
        with (
            noting(Reader, "nodes", self._pages.append),
            noting(Reader, "names", self._parents.append),
        ):
            yield

    @override
    def read(self) -> int:
        for paths in self._parents:
            self._all(self._client.get_children_async, paths)
        return sum(len(self._rows(paths)) for paths in self._pages)

    @override
    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _rows(self, paths: Sequence[str]) -> list[Any]:
        found = zip(paths, self._all(self._client.get_async, paths), strict=True)
        return [
            (path, data, stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)
            for path, (data, stat) in found
            if path.count("/") == _RECORD_DEPTH
        ]

    def _all(self, ask: Any, paths: Sequence[str]) -> list[Any]:
        answers = [ask(path or "/") for path in paths]
        return [answer.get() for answer in answers]
