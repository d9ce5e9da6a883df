"""Records: one key per key, whose version is the revision it was last written at."""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.key_layout import Paths
from kip30.driver.kit.following import gathered
from kip30.driver.kit.futures import mapped
from kip30.driver.records import Entry, NamePage, Version, Write
from kip30.names import Key
from kip30_backends.etcd import requests
from kip30_backends.etcd.batches import MAX_OPS
from kip30_backends.etcd.call import Ask
from kip30_backends.etcd.calls import Calls
from kip30_backends.etcd.channel import TXN
from kip30_backends.etcd.election import leader_key
from kip30_backends.etcd.messages import RangeAnswer, TxnAnswer, only
from kip30_backends.etcd.orders import Mark
from kip30_backends.etcd.places import Place
from kip30_backends.etcd.sealed import unsealed
from kip30_backends.etcd.states import States
from kip30_backends.etcd.together import write_together


class EtcdStorage(StorageDriver):
    """Keys and their values."""

    def __init__(self, paths: Paths, calls: Calls, states: States) -> None:
        """Keep records where *paths* places them."""
        self._paths = paths
        self._calls = calls
        self._states = states

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        if len(keys) == 1:
            return self._calls.batch(self._key(keys[0]), _entry)
        parts = [keys[at : at + MAX_OPS] for at in range(0, len(keys), MAX_OPS)]
        return mapped(gathered([self._read(part) for part in parts]), _joined)

    @override
    def write(self, write: Write) -> Future[Version]:
        place = self._place(write)
        ask = Ask(TXN, place.transaction(), partial(self._version, place), writes=True)
        return self._calls.on_demand(ask)

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        return write_together(self._calls, [self._place(write) for write in writes])

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        del limit  # the order of escaped names is another one, so a read brings all
        return mapped(self._states.names(namespace), partial(_page, after))

    def _read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        request = requests.txn([], [requests.find(self._key(key)) for key in keys])
        return self._calls.send(Ask(TXN, request, _entries))

    def _version(self, place: Place, answer: TxnAnswer, _sent: Mark) -> Version:
        return place.version(answer, answer.header.revision)

    def _place(self, write: Write) -> Place:
        leader = leader_key(self._paths, write.fence.service) if write.fence else b""
        return Place(write, self._key(write.key), leader)

    def _key(self, key: Key) -> bytes:
        return self._paths.value(key).encode()


def _entry_of(answer: RangeAnswer) -> Entry | None:
    found = only(answer)
    if found is None:
        return None
    nonce, _, data = unsealed(found)
    return Entry(Version(found.mod_revision), nonce, data)


def _entry(answer: RangeAnswer) -> list[Entry | None]:
    return [_entry_of(answer)]


def _entries(answer: TxnAnswer, _sent: Mark) -> list[Entry | None]:
    return [_entry_of(one.response_range) for one in answer.responses]


def _joined(parts: list[list[Entry | None]]) -> list[Entry | None]:
    return [entry for part in parts for entry in part]


def _page(after: str, names: Sequence[str]) -> NamePage:
    # The order of code points is that of UTF-8.
    return NamePage(sorted(name for name in names if name > after), is_last=True)
