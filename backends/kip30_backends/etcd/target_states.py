"""Reading targets: which keys they are, and the content of their values, at one revision."""

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from kip30.driver.key_layout import Paths
from kip30.driver.kit import refusals
from kip30.driver.kit.batch_splitting import records_at_once
from kip30.driver.kit.operation import OperationFuture, Steps
from kip30.driver.kit.record_paths import leader_path, path_of
from kip30.driver.kit.time_left import seconds_left
from kip30.driver.record_format import EnvelopeContent, unseal
from kip30.driver.records import Entry, Kind, Snapshot, Target, Version
from kip30.errors import InvalidNameError, StoreError
from kip30.names import unescape
from kip30_backends.etcd.calls import Calls, TypedRequest, itself
from kip30_backends.etcd.client import messages
from kip30_backends.etcd.client.channel import RANGE
from kip30_backends.etcd.client.messages import PUT, Event, KeyValue, RangeAnswer
from kip30_backends.etcd.errors import CompactedError
from kip30_backends.etcd.observation_order import OrderMark


def leader_key(paths: Paths, service: str) -> bytes:
    """Return the key of the leader of *service*."""
    return leader_path(paths, service).encode()


def unsealed(found: KeyValue) -> EnvelopeContent:
    """Return the record in *found*.

    Raises:
        StoreError: It is another program's, a newer kip30's, or damaged. The text names the key.
    """
    return unseal(found.value, _text(found.key))


def claimed(found: KeyValue) -> EnvelopeContent:
    """Return the record in *found*, of a member or leader.

    Raises:
        StoreError: As `unsealed`, or it has no lease. The text names the key.
    """
    record = unsealed(found)
    if not found.lease:
        raise refusals.unowned(_text(found.key))
    return record


def _text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")


T = TypeVar("T")

_PAGE = 5000
_NAMES_PAGE = 25_000
"""More of what is small: for each page etcd goes through all keys that follow."""
# The byte after that of the slash, so keys below a parent end before it.
_AFTER_SLASH = b"0"


_UNNAMED = Entry(Version(0), "", b"")
"""Stands for each key of a namespace, of which only the name is requested."""

Reader = Callable[[KeyValue], tuple[str, Entry]]


class Content(NamedTuple):
    """The entries of a target by name, and why other keys of it are no such entries."""

    entries: dict[str, Entry]
    unreadable: dict[str, str]

    def without(self, name: str) -> None:
        """Remove the entry *name*, if there is one."""
        self.entries.pop(name, None)
        self.unreadable.pop(name, None)


class TargetKeys(NamedTuple):
    """The keys of a target: from *key* up to *end*, or *key* alone."""

    target: Target
    key: bytes
    end: bytes = b""

    def content(self, found: Iterable[KeyValue]) -> Content:
        """Return the content of *found*, all keys of this target."""
        read = self._reader()
        # All at once, which nearly always succeeds: looking for an error at each key takes longer.
        try:
            return Content(dict(map(read, found)), {})
        except (StoreError, InvalidNameError):
            content = Content({}, {})
        for one in found:
            self._add(read, one, content)
        return content

    def name(self, found: KeyValue) -> str:
        """Return the name of an entry: of a key that is none of kip30's, the text after *key*."""
        if not self.end:
            return self.target.name or self.target.scope
        segment = found.key[len(self.key) :]
        try:
            return _unescaped(segment)
        except InvalidNameError:
            return _text(segment)

    def is_news(self, event: Event, content: Content) -> bool:
        """Return whether *event* changes *content*: an update of a value changes no set of keys."""
        if self.target.kind is not Kind.NAMESPACE:
            return True
        name = self.name(event.kv)
        return (name in content.entries or name in content.unreadable) != (event.type == PUT)

    def apply(self, event: Event, content: Content) -> None:
        """Update *content* to the state after *event*."""
        if self.end:
            content.without(self.name(event.kv))
        else:
            content.entries.clear()
            content.unreadable.clear()
        if event.type == PUT:
            self._add(self._reader(), event.kv, content)

    def _add(self, read: Reader, found: KeyValue, content: Content) -> None:
        try:
            name, entry = read(found)
            content.entries[name] = entry
        except (StoreError, InvalidNameError) as error:
            content.unreadable[self.name(found)] = str(error)

    def _reader(self) -> Reader:
        """Return what makes the name and the record of a key of this target.

        It raises `StoreError` if the record is none of kip30's, or `InvalidNameError` if the name
        is none.
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
            case Kind.MEMBER:
                return self._own

    def _key(self, found: KeyValue) -> tuple[str, Entry]:
        return self._name(found), _UNNAMED

    def _member(self, found: KeyValue) -> tuple[str, Entry]:
        nonce, _, data = claimed(found)
        return self._name(found), Entry(Version(found.create_revision), nonce, data)

    def _value(self, found: KeyValue) -> tuple[str, Entry]:
        nonce, _, data = unsealed(found)
        return self.target.name, Entry(Version(found.mod_revision), nonce, data)

    def _own(self, found: KeyValue) -> tuple[str, Entry]:
        nonce, _, data = claimed(found)
        return self.target.name, Entry(Version(found.create_revision), nonce, data)

    def _name(self, found: KeyValue) -> str:
        return _unescaped(found.key[len(self.key) :])


class KeysAtRevision(NamedTuple):
    """The keys that were found of a target, at which order and revision."""

    order: int
    revision: int
    found: Sequence[KeyValue]


class TargetStates:
    """The targets of one namespace of the configuration."""

    def __init__(self, paths: Paths, calls: Calls) -> None:
        """Read what *paths* places."""
        self._paths = paths
        self._calls = calls

    def place(self, target: Target) -> TargetKeys:
        """Return which keys *target* has."""
        key = path_of(self._paths, target).encode()
        parent, slash, name = key.rpartition(b"/")
        return (
            TargetKeys(target, key)
            if name
            else TargetKeys(target, parent + slash, parent + _AFTER_SLASH)
        )

    def read(self, target: Target) -> Future[Snapshot]:
        """Return the state of *target*."""
        place = self.place(target)
        return self.look(place, partial(_snapshot, place))

    def names(self, namespace: str) -> Future[list[str]]:
        """Return the names in *namespace*, in no order."""
        place = self.place(Target(Kind.NAMESPACE, namespace))
        return self.look(place, lambda page: list(place.content(page.found).entries))

    def look(self, place: TargetKeys, read: Callable[[KeysAtRevision], T]) -> Future[T]:
        """Return the result of *read* for all keys of *place*, as of one revision."""
        return OperationFuture(self._look(place, read, time.monotonic() + self._calls.seconds))

    def _look(
        self, place: TargetKeys, read: Callable[[KeysAtRevision], T], until: float
    ) -> Steps[T]:
        """Read all keys, page by page; again, if their revision was compacted meanwhile.

        The first page is read by *until*, and each further one takes the operation timeout at most.
        """
        while True:
            ask = TypedRequest(RANGE, _request(place), self._ordered)
            first: RangeAnswer
            first, order = yield self._calls.send(ask, seconds_left(until))
            found, more, revision = [*first.kvs], first.more, first.header.revision
            try:
                while more:
                    request = _request(place, found, revision)
                    page: RangeAnswer = yield self._calls.send(TypedRequest(RANGE, request, itself))
                    found += page.kvs
                    more = page.more
            except CompactedError:
                until = time.monotonic() + self._calls.seconds
                continue
            return read(KeysAtRevision(order, revision, found))

    def _ordered(self, answer: RangeAnswer, sent: OrderMark) -> tuple[RangeAnswer, int]:
        return answer, self._calls.orders.of(answer.header, sent)


def _request(place: TargetKeys, found: Sequence[KeyValue] = (), revision: int = 0) -> Any:
    """Return the request for the first keys of *place*, or for those after *found*."""
    if place.target.kind is Kind.NAMESPACE:
        names_only, limit = True, _NAMES_PAGE
    else:
        names_only, limit = False, records_at_once([len(one.value) for one in found], _PAGE)
    begin = found[-1].key + b"\0" if found else place.key
    return messages.page(begin, place.end, limit=limit, names_only=names_only, revision=revision)


def _snapshot(place: TargetKeys, page: KeysAtRevision) -> Snapshot:
    return Snapshot(page.order, *place.content(page.found))


def _leader(found: KeyValue) -> tuple[str, Entry]:
    nonce, candidate, data = claimed(found)
    return candidate, Entry(Version(found.create_revision), nonce, data)


def _unescaped(segment: bytes) -> str:
    text = segment.decode("ascii", "backslashreplace")
    # Most names need no unescaping, and a cache lookup would cost more than that.
    return _unescaped_anyway(text) if "=" in text or "." in text else unescape(text)


@lru_cache(maxsize=8192)
def _unescaped_anyway(segment: str) -> str:
    return unescape(segment)
