"""Reading targets: which keys they have, what is in their records, and in which order."""

import threading

from kip30.driver.key_layout import Paths
from kip30.driver.kit import refusals
from kip30.driver.kit.byte_store.interface import ByteStore, StoredRecord, StorePosition
from kip30.driver.kit.record_paths import leader_path, path_of
from kip30.driver.record_format import EnvelopeContent, unseal
from kip30.driver.records import Entry, Kind, Snapshot, Target, Version
from kip30.errors import InvalidNameError, StoreError
from kip30.names import unescape

_REVISION_BITS = 64


def unsealed(found: StoredRecord) -> EnvelopeContent:
    """Return nonce, name and data of a record; raises `StoreError` if it is none of kip30's."""
    return unseal(found.data, found.key)


def claimed(found: StoredRecord) -> EnvelopeContent:
    """Return the same of a member or leader; raises `StoreError` also if it has no lease."""
    record = unsealed(found)
    if found.lease is None:
        raise refusals.unowned(found.key)
    return record


class AnswerOrder:
    """Puts all answers of a backend in one order, also those of a store that started from scratch.

    Thread-safe.
    """

    def __init__(self) -> None:
        """Start without a store."""
        # The stores that have answered, numbered by their first answers. Written under the lock.
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def of(self, position: StorePosition) -> int:
        """Return the order of what holds at *position*."""
        with self._lock:
            number = self._numbers.setdefault(position.store, len(self._numbers))
        return (number << _REVISION_BITS) + position.revision


class TargetStates:
    """The targets of one namespace of the configuration."""

    def __init__(self, store: ByteStore, paths: Paths) -> None:
        """Read what *paths* places in *store*."""
        self.orders: AnswerOrder = AnswerOrder()
        self.paths = paths
        self._store = store

    def leader_key(self, service: str) -> str:
        """Return the key of the leader of *service*."""
        return leader_path(self.paths, service)

    def read(self, target: Target, until: float) -> Snapshot:
        """Return the state of *target* as of now."""
        path = path_of(self.paths, target)
        if path.endswith("/"):
            keys_only = target.kind is Kind.NAMESPACE
            reading = self._store.find(path, until, keys_only=keys_only)
        else:
            reading = self._store.get([path], until)
        entries, unreadable = dict[str, Entry](), dict[str, str]()
        for found in reading.records:
            segment = found.key.removeprefix(path)
            try:
                name, entry = _entry(target, segment, found)
                entries[name] = entry
            except (StoreError, InvalidNameError) as error:
                unreadable[target.name or segment or found.key] = str(error)
        return Snapshot(self.orders.of(reading.position), entries, unreadable)


def _entry(target: Target, segment: str, found: StoredRecord) -> tuple[str, Entry]:
    if target.kind is Kind.NAMESPACE:
        return unescape(segment), Entry(Version(0), "", b"")
    if target.kind is Kind.VALUE:
        nonce, _, data = unsealed(found)
        return target.name, Entry(Version(found.modified), nonce, data)
    nonce, label, data = claimed(found)
    entry = Entry(Version(found.created), nonce, data)
    if target.kind is Kind.SERVICE:
        return label, entry
    return target.name or unescape(segment), entry
