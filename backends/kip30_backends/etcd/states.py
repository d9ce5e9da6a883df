"""Whole targets: which keys they are, and what their state is."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from kip30.envelope import unseal
from kip30.errors import InvalidNameError, StoreError
from kip30.following import otherwise
from kip30.names import Key, unescape
from kip30.paths import Paths
from kip30.records import Entry, Kind, Snapshot, Target, Version
from kip30_backends.etcd import requests
from kip30_backends.etcd.call import Ask
from kip30_backends.etcd.calls import Calls
from kip30_backends.etcd.channel import RANGE
from kip30_backends.etcd.election import leader_key
from kip30_backends.etcd.errors import CompactedError
from kip30_backends.etcd.messages import PUT, Event, KeyValue, RangeAnswer
from kip30_backends.etcd.orders import Mark

T = TypeVar("T")

_PAGE = 5000
_AFTER_SLASH = b"0"


Reader = Callable[[KeyValue], tuple[str, Entry]]


class Place(NamedTuple):
    """The keys of a target: from *key* up to *end*, or *key* alone."""

    target: Target
    key: bytes
    end: bytes = b""

    def reader(self) -> Reader:
        """Return what makes the name and the record of a key of this target.

        It raises `StoreError` if somebody else wrote the key, or `InvalidNameError`, since names
        of ours do not look like that.
        """
        match self.target.kind:
            case Kind.NAMESPACE:
                return self._key
            case Kind.GROUP:
                return self._member
            case Kind.SERVICE:
                return _leader
            case Kind.VALUE:
                return self._value

    def apply(self, event: Event, entries: dict[str, Entry]) -> None:
        """Make *entries* what they are after *event*."""
        if self.end:
            entries.pop(self._name(event.kv), None)
        else:
            entries.clear()
        if event.type == PUT:
            entries.update([self.reader()(event.kv)])

    def _key(self, found: KeyValue) -> tuple[str, Entry]:
        return self._name(found), Entry(Version(found.mod_revision), "", b"")

    def _member(self, found: KeyValue) -> tuple[str, Entry]:
        nonce, _, data = _unsealed(found)
        return self._name(found), Entry(Version(found.create_revision), nonce, data)

    def _value(self, found: KeyValue) -> tuple[str, Entry]:
        nonce, _, data = _unsealed(found)
        return self.target.name, Entry(Version(found.mod_revision), nonce, data)

    def _name(self, found: KeyValue) -> str:
        return _unescaped(found.key[len(self.key) :])


class Page(NamedTuple):
    """The keys that were found of a target, at which order and revision."""

    order: int
    revision: int
    found: Sequence[KeyValue]


class States:
    """The targets of one namespace of the configuration."""

    def __init__(self, paths: Paths, calls: Calls) -> None:
        """Read what *paths* places."""
        self._paths = paths
        self._calls = calls

    def place(self, target: Target) -> Place:
        """Return which keys *target* has."""
        match target.kind:
            case Kind.VALUE:
                key = self._paths.value(Key(target.scope, target.name))
                return Place(target, key.encode())
            case Kind.SERVICE:
                return Place(target, leader_key(self._paths, target.scope))
            case Kind.NAMESPACE:
                return _below(target, self._paths.namespace(target.scope))
            case Kind.GROUP:
                return _below(target, self._paths.group(target.scope))

    def read(self, target: Target) -> Future[Snapshot]:
        """Return the state of *target*; fails with `StoreError` if it is somebody else's."""
        place = self.place(target)
        return self.look(place, partial(_strict, place))

    def look(self, place: Place, read: Callable[[Page], T]) -> Future[T]:
        """Return what *read* makes of all keys of *place*, as of one revision."""

        def first(answer: RangeAnswer, sent: Mark) -> T | Future[T]:
            order = self._calls.orders.of(answer.header, sent)
            page = Page(order, answer.header.revision, answer.kvs)
            return self._go_on(place, page, read) if answer.more else read(page)

        return self._calls.send(Ask(RANGE, _request(place), first))

    def _go_on(self, place: Place, so_far: Page, read: Callable[[Page], T]) -> Future[T]:
        """Read the rest of *place*; all of it anew, if its revision is forgotten by now."""

        def next_page(answer: RangeAnswer, _sent: Mark) -> T | Future[T]:
            page = so_far._replace(found=[*so_far.found, *answer.kvs])
            return self._go_on(place, page, read) if answer.more else read(page)

        page = self._calls.send(Ask(RANGE, _request(place, so_far), next_page))
        return otherwise(page, CompactedError, lambda: self.look(place, read))


def _request(place: Place, so_far: Page | None = None) -> Any:
    """Return the request for the first keys of *place*, or for those after *so_far*."""
    names_only = place.target.kind is Kind.NAMESPACE
    if so_far is None:
        return requests.page(place.key, place.end, limit=_PAGE, names_only=names_only)
    after = so_far.found[-1].key + b"\0"
    return requests.page(
        after, place.end, limit=_PAGE, names_only=names_only, revision=so_far.revision
    )


def _strict(place: Place, page: Page) -> Snapshot:
    try:
        return Snapshot(page.order, dict(map(place.reader(), page.found)))
    except InvalidNameError as error:
        raise StoreError(f"somebody else's key is among those of kip30: {error}") from error


def _below(target: Target, parent: str) -> Place:
    key = parent.encode()
    return Place(target, key + b"/", key + _AFTER_SLASH)


def _leader(found: KeyValue) -> tuple[str, Entry]:
    nonce, candidate, data = _unsealed(found)
    return candidate, Entry(Version(found.create_revision), nonce, data)


@lru_cache(maxsize=8192)
def _unescaped(segment: bytes) -> str:
    return unescape(segment.decode("ascii", "backslashreplace"))


def _unsealed(found: KeyValue) -> tuple[str, str, bytes]:
    return unseal(found.value, found.key.decode("ascii", "backslashreplace"))
