"""Hearing of a key's new values, and writing them: with kip30, kazoo and grpcio."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from typing_extensions import override

from benchmarks.remote.place import Place
from kip30 import ValueChange

KEY = "bench/watched"
_RAW_KEY = "/raw/kv/bench/watched"

Heard = Callable[[str], None]


class Wire(ABC):
    """A connection by which one process writes a key, and another hears of it."""

    @abstractmethod
    def create(self) -> None:
        """Have the key be there."""

    @abstractmethod
    def write(self, value: str) -> None:
        """Give it another value."""

    @abstractmethod
    def listen(self, heard: Heard) -> None:
        """Have *heard* called with each value from now on, on some thread."""


class LibraryWire(Wire):
    def __init__(self, place: Place) -> None:
        self._locator = place.started("events")
        self._storage = self._locator.storage()

    @override
    def create(self) -> None:
        self._storage.put(KEY, "")

    @override
    def write(self, value: str) -> None:
        self._storage.update(KEY, value)

    @override
    def listen(self, heard: Heard) -> None:
        def hear(change: ValueChange[str]) -> None:
            heard(change.value or "")

        self._locator.listener_registry().add_value_change_listener(KEY, hear)


class KazooWire(Wire):
    """A watch of ``get``, which is armed again with the read it gives rise to."""

    def __init__(self, place: Place) -> None:
        from benchmarks.remote.raw_zookeeper import connected  # noqa: PLC0415  as in sides

        self._client = connected(place)

    @override
    def create(self) -> None:
        self._client.create(_RAW_KEY, b"", makepath=True)

    @override
    def write(self, value: str) -> None:
        self._client.set(_RAW_KEY, value.encode())

    @override
    def listen(self, heard: Heard) -> None:
        def again(_event: object) -> None:
            data, _ = self._client.get(_RAW_KEY, watch=again)
            heard(data.decode())

        self._client.get(_RAW_KEY, watch=again)


class GrpcWire(Wire):
    """A watch stream from the revision at which it was opened."""

    def __init__(self, place: Place) -> None:
        from benchmarks.remote import etcd_stubs  # noqa: PLC0415  as in sides

        self._etcd = etcd_stubs
        self._stubs = etcd_stubs.Stubs(place.address)

    @override
    def create(self) -> None:
        key = _RAW_KEY.encode()
        self._stubs.put_if(self._etcd.absent(key), b"")

    @override
    def write(self, value: str) -> None:
        key = _RAW_KEY.encode()
        self._stubs.put_if(self._etcd.present(key), value.encode())

    @override
    def listen(self, heard: Heard) -> None:
        answers = self._stubs.watched(_RAW_KEY.encode())

        def run() -> None:
            for answer in answers:
                for event in answer.events:
                    heard(event.kv.value.decode())

        threading.Thread(target=run, daemon=True).start()


def wire(side: str, place: Place) -> Wire:
    if side == "library":
        return LibraryWire(place)
    return KazooWire(place) if place.store == "zookeeper" else GrpcWire(place)
