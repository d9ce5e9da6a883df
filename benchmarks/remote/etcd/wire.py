"""A watch stream from the revision at which it was opened."""

import threading

from typing_extensions import override

from benchmarks.remote.etcd.stubs import Stubs, absent, present
from benchmarks.remote.wire import RAW_KEY, Heard, Wire
from benchmarks.store_address import StoreAddress

_KEY = RAW_KEY.encode()


class RawWire(Wire):
    def __init__(self, address: StoreAddress) -> None:
        self._stubs = Stubs(address.location)

    @override
    def create(self) -> None:
        self._stubs.put_if(absent(_KEY), b"")

    @override
    def write(self, value: str) -> None:
        self._stubs.put_if(present(_KEY), value.encode())

    @override
    def listen(self, heard: Heard) -> None:
        answers = self._stubs.watched(_KEY)

        def run() -> None:
            for answer in answers:
                for event in answer.events:
                    heard(event.kv.value.decode())

        threading.Thread(target=run, daemon=True).start()
