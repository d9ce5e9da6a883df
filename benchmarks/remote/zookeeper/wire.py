"""A watch of ``get``, which is armed again with the read it gives rise to."""

from typing_extensions import override

from benchmarks.remote.wire import RAW_KEY, Heard, Wire
from benchmarks.remote.zookeeper.client import connected
from benchmarks.store_address import StoreAddress

_PATH = f"/{RAW_KEY}"


class RawWire(Wire):
    def __init__(self, address: StoreAddress) -> None:
        self._client = connected(address)

    @override
    def create(self) -> None:
        self._client.create(_PATH, b"", makepath=True)

    @override
    def write(self, value: str) -> None:
        self._client.set(_PATH, value.encode())

    @override
    def listen(self, heard: Heard) -> None:
        def again(_event: object) -> None:
            data, _ = self._client.get(_PATH, watch=again)
            heard(data.decode())

        self._client.get(_PATH, watch=again)
