"""The transactions of a scan by http.client alone."""

from base64 import b64decode
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from benchmarks.pipeline.replay import RawScan, noting
from benchmarks.remote.consul.client import Client
from benchmarks.store_address import StoreAddress
from kip30_backends.consul import scanning
from kip30_backends.consul.client.operation_requests import Ask


class BareScan(RawScan):
    """It does not look whether the cluster is still the one that it was."""

    def __init__(self, address: StoreAddress) -> None:
        self._client = Client(address)
        self._requests: list[tuple[str, bytes]] = []

    @override
    @contextmanager
    def recording(self) -> Generator[None]:
        def note(ask: Ask[Any]) -> None:
            if ask.body:
                self._requests.append((ask.target, ask.body))

        with noting(scanning.ConsulScanner, "_ask", note):
            yield

    @override
    def read(self) -> int:
        return sum(len(self._rows(*request)) for request in self._requests)

    @override
    def close(self) -> None:
        self._client.close()

    def _rows(self, target: str, body: bytes) -> list[Any]:
        told = self._client.transaction(target, body)
        return [
            (
                one["Key"],
                b64decode(one["Value"] or ""),
                one["ModifyIndex"],
                one["CreateIndex"],
                one.get("Session"),
            )
            for one in (result["KV"] for result in told["Results"])
        ]
