"""A blocking query after another."""

import threading

from typing_extensions import override

from benchmarks.remote.consul.client import Client
from benchmarks.remote.wire import RAW_KEY, Heard, Wire
from benchmarks.store_address import StoreAddress
from kip30_backends.consul import transactions


class RawWire(Wire):
    def __init__(self, address: StoreAddress) -> None:
        self._client = Client(address)

    @override
    def create(self) -> None:
        self._client.write([transactions.put_over(RAW_KEY, b"", 0)])

    @override
    def write(self, value: str) -> None:
        self._client.write([transactions.get(RAW_KEY), transactions.put(RAW_KEY, value.encode())])

    @override
    def listen(self, heard: Heard) -> None:
        index, _ = self._client.read_after(RAW_KEY, 0)
        threading.Thread(target=self._follow, args=[index, heard], daemon=True).start()

    def _follow(self, index: int, heard: Heard) -> None:
        while True:
            index, value = self._client.read_after(RAW_KEY, index)
            heard((value or b"").decode())
