"""The ranges of a scan by grpcio alone."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from benchmarks.pipeline.replay import RawScan, noting
from benchmarks.remote.etcd.stubs import Stubs
from benchmarks.store_address import StoreAddress
from kip30_backends.etcd import scanning

# As kip30's: the usual limit is 4 MiB, and a page may be larger.
_ANY_SIZE = (("grpc.max_receive_message_length", -1),)


class BareScan(RawScan):
    def __init__(self, address: StoreAddress) -> None:
        self._stubs = Stubs(address.location, _ANY_SIZE)
        self._requests: list[Any] = []

    @override
    @contextmanager
    def recording(self) -> Generator[None]:
        def note(request: Any, *_: Any) -> None:
            self._requests.append(request)

        with noting(scanning.EtcdScanner, "_ask", note):
            yield

    @override
    def read(self) -> int:
        ask = self._stubs.calls["Range"]
        return sum(len(_rows(ask(request))) for request in self._requests)

    @override
    def close(self) -> None:
        self._stubs.close()


def _rows(answer: Any) -> list[Any]:
    return [
        (one.key, one.value, one.mod_revision, one.create_revision, one.lease) for one in answer.kvs
    ]
