"""Whole targets: which keys they are, and what their state is."""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from typing import NamedTuple

from kip30.errors import InvalidNameError, StoreError
from kip30.names import Key, unescape
from kip30.paths import Paths
from kip30.records import Entry, Kind, Snapshot, Target, Version
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.election import leader_key
from kip30_backends.consul.membership import group_key
from kip30_backends.consul.orders import Mark
from kip30_backends.consul.records import Found, Record, found, key_of, target
from kip30_backends.consul.talk import OK_OR_ABSENT, Ask, Talk

_OPTIONS = {Kind.NAMESPACE: "&keys", Kind.GROUP: "&recurse"}
_HELD = frozenset({Kind.GROUP, Kind.SERVICE})
_UNKNOWN = Version(0)

Entries = dict[str, Entry]


class Place(NamedTuple):
    """The keys of a target: the one at *key*, or all that begin with it."""

    target: Target
    key: str

    @property
    def url(self) -> str:
        """What is asked for to read it."""
        return target(self.key, _OPTIONS.get(self.target.kind, ""))

    def entries(self, records: Iterable[Record], foreign: Callable[[Exception], None]) -> Entries:
        """Return the entries that *records* hold; *foreign* is told of what is not kip30's."""
        entries: Entries = {}
        for record in records:
            try:
                if record.session or self.target.kind not in _HELD:
                    name, entry = self._entry(record)
                    entries[name] = entry
            except (StoreError, InvalidNameError) as error:
                foreign(error)
        return entries

    def _entry(self, record: Record) -> tuple[str, Entry]:
        if self.target.kind is Kind.NAMESPACE:
            return self._name(record), Entry(_UNKNOWN, "", b"")
        nonce, label, data = record.unsealed()
        match self.target.kind:
            case Kind.VALUE:
                return self.target.name, Entry(Version(record.modified), nonce, data)
            case Kind.SERVICE:
                return label, Entry(Version(record.created), nonce, data)
            case Kind.GROUP:
                return self._name(record), Entry(Version(record.created), nonce, data)

    def _name(self, record: Record) -> str:
        return _unescaped(record.key[len(self.key) :])


class States:
    """The targets of one namespace of the configuration."""

    def __init__(self, paths: Paths, calls: Calls) -> None:
        """Read what *paths* places."""
        self._paths = paths
        self._calls = calls

    @property
    def root(self) -> str:
        """What is asked for to see whether anything has changed at all."""
        return target(f"{key_of(self._paths.root)}/", "&keys&separator=/")

    def place(self, wanted: Target) -> Place:
        """Return which keys *wanted* has."""
        match wanted.kind:
            case Kind.VALUE:
                return Place(wanted, key_of(self._paths.value(Key(wanted.scope, wanted.name))))
            case Kind.SERVICE:
                return Place(wanted, leader_key(self._paths, wanted.scope))
            case Kind.NAMESPACE:
                return Place(wanted, f"{key_of(self._paths.namespace(wanted.scope))}/")
            case Kind.GROUP:
                return Place(wanted, group_key(self._paths, wanted.scope))

    def mark(self, place: Place) -> Mark:
        """Return how far answers about *place* have come, to be noted before it is asked for."""
        return self._calls.orders.mark(place.key)

    def order(self, index: int, sent: Mark) -> int:
        """Return the order of an answer, given `mark` of its place as it was when it was sent."""
        return self._calls.orders.of(index, sent)

    def look(self, place: Place, talk: Talk) -> tuple[int, Found]:
        """Return what is at *place*, and the order of that."""
        sent = self.mark(place)
        there = talk.ask(Ask("GET", place.url, found, answers=OK_OR_ABSENT))
        return self.order(there.at, sent), there

    def read(self, place: Place, talk: Talk) -> Snapshot:
        """Return the state of *place*; raises `StoreError` if it is somebody else's."""
        order, there = self.look(place, talk)
        return Snapshot(order, place.entries(there.records, partial(_raise, place)))


def _raise(place: Place, error: Exception) -> None:
    if isinstance(error, StoreError):
        raise error
    raise StoreError(f"somebody else's key is below {place.key}: {error}") from error


@lru_cache(maxsize=8192)
def _unescaped(segment: str) -> str:
    return unescape(segment)
