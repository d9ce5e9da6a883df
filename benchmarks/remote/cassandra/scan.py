"""The slices of a scan by cassandra-driver alone."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from benchmarks.pipeline.replay import RawScan, noting
from benchmarks.remote.cassandra.client import Client
from benchmarks.store_address import StoreAddress
from kip30_backends.cassandra.calls import Ask, Calls


class BareScan(RawScan):
    """It does not look whether the tables are still those that they were."""

    def __init__(self, address: StoreAddress) -> None:
        self._client = Client(address)
        self._prepared: dict[str, Any] = {}
        self._requests: list[tuple[Any, Any]] = []

    @override
    @contextmanager
    def recording(self) -> Generator[None]:
        with noting(Calls, "send", self._note):
            yield

    @override
    def read(self) -> int:
        return sum(len(self._rows(*request)) for request in self._requests)

    @override
    def close(self) -> None:
        self._client.close()

    def _note(self, ask: Ask[Any]) -> None:
        prepared = ask.statement.prepared_statement
        cql: str = prepared.query_string
        if "system" in cql or "DISTINCT" in cql:
            return
        if cql not in self._prepared:
            self._prepared[cql] = self._client.prepare(cql)
        self._requests.append((self._prepared[cql], _values(ask.statement)))

    def _rows(self, prepared: Any, values: Any) -> list[Any]:
        return [
            (one["namespace"], one["name"], one["data"], one["version"])
            for one in self._client.send(prepared.bind(values))
        ]


def _values(statement: Any) -> Any:
    """Return what *statement* was bound with: it keeps only what is sent."""
    columns = statement.prepared_statement.column_metadata
    return [
        column.type.from_binary(value, 4)
        for column, value in zip(columns, statement.values, strict=True)
    ]
