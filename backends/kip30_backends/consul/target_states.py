"""Reading targets: which keys they are, and the content of their values."""

from collections.abc import Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from typing import Any, NamedTuple

from kip30.driver.key_layout import Paths
from kip30.driver.kit.record_paths import path_of
from kip30.driver.records import Entry, Kind, Snapshot, Target, Version
from kip30.errors import InvalidNameError, StoreError
from kip30.names import unescape
from kip30_backends.consul.calls import Calls
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.client.operation_requests import (
    OK_OR_ABSENT,
    OperationRequests,
    TypedRequest,
)
from kip30_backends.consul.membership import group_key
from kip30_backends.consul.observation_order import OrderMark
from kip30_backends.consul.transactions import KVPair, index_of, key_of, listed, record, target

_OPTIONS = {Kind.NAMESPACE: "&keys", Kind.GROUP: "&recurse"}
_HELD = frozenset({Kind.GROUP, Kind.MEMBER, Kind.SERVICE})
_FOLDERS = {
    Kind.VALUE: "kv",
    Kind.NAMESPACE: "kv",
    Kind.GROUP: "group",
    Kind.MEMBER: "group",
    Kind.SERVICE: "service",
}
_UNNAMED = Entry(Version(0), "", b"")
"""Stands for each key of a namespace, of which only the name is requested."""


class Content(NamedTuple):
    """The entries of a target by name, and why other keys of it are not entries."""

    entries: dict[str, Entry]
    unreadable: dict[str, str]


class TargetKeys(NamedTuple):
    """The keys of a target: the one at *key*, or all that begin with it."""

    target: Target
    key: str

    @property
    def url(self) -> str:
        """The URL that reads it."""
        return target(self.key, _OPTIONS.get(self.target.kind, ""))

    def content(self, items: Sequence[Any]) -> Content:
        """Return the content from Consul's JSON, names or records of this target."""
        if self.target.kind is Kind.NAMESPACE:
            return self._names(items)
        content = Content({}, {})
        for one in items:
            self._add(record(one), content)
        return content

    def content_of(self, found_there: KVPair) -> Content:
        """Return the content of the one record of this target."""
        content = Content({}, {})
        self._add(found_there, content)
        return content

    def _names(self, keys: Sequence[str]) -> Content:
        begin = len(self.key)
        # All at once, which nearly always succeeds: looking for an error at each name takes longer.
        try:
            return Content(dict.fromkeys([_unescaped(key[begin:]) for key in keys], _UNNAMED), {})
        except InvalidNameError:
            content = Content({}, {})
        for key in keys:
            try:
                content.entries[_unescaped(key[begin:])] = _UNNAMED
            except InvalidNameError as error:
                content.unreadable[key[begin:]] = str(error)
        return content

    def _add(self, found_there: KVPair, content: Content) -> None:
        try:
            name, entry = self._entry(found_there)
            content.entries[name] = entry
        except (StoreError, InvalidNameError) as error:
            content.unreadable[self._shown(found_there)] = str(error)

    def _entry(self, record: KVPair) -> tuple[str, Entry]:
        nonce, label, data = record.claimed() if self.target.kind in _HELD else record.unsealed()
        match self.target.kind:
            case Kind.SERVICE:
                return label, Entry(Version(record.created), nonce, data)
            case Kind.GROUP:
                name = _unescaped(record.key[len(self.key) :])
                return name, Entry(Version(record.created), nonce, data)
            case Kind.MEMBER:
                return self.target.name, Entry(Version(record.created), nonce, data)
            case Kind.VALUE | Kind.NAMESPACE:
                return self.target.name, Entry(Version(record.modified), nonce, data)

    def _shown(self, record: KVPair) -> str:
        """Return the name of what is no entry: of a key that is none of kip30's, its end."""
        if self.target.kind is not Kind.GROUP:
            return self.target.name or self.target.scope
        segment = record.key[len(self.key) :]
        try:
            return _unescaped(segment)
        except InvalidNameError:
            return segment


class TargetStates:
    """The targets of one namespace of the configuration."""

    def __init__(self, paths: Paths, calls: Calls) -> None:
        """Read what *paths* places."""
        self._paths = paths
        self._calls = calls

    def all_of(self, kind: Kind) -> str:
        """Return what the keys of all targets of *kind* begin with."""
        root = key_of(self._paths.root)
        return f"{root}/{_FOLDERS[kind]}/"

    def near(self, place: TargetKeys) -> str:
        """Return what the keys of the namespace, group or service of *place* begin with.

        Keys of others may begin with it, too: then its shared query returns needlessly.
        """
        match place.target.kind:
            case Kind.VALUE | Kind.NAMESPACE:
                return key_of(self._paths.namespace(place.target.scope))
            case Kind.GROUP | Kind.MEMBER:
                return key_of(self._paths.group(place.target.scope))
            case Kind.SERVICE:
                return key_of(self._paths.service(place.target.scope))

    def place(self, wanted: Target) -> TargetKeys:
        """Return which keys *wanted* has."""
        return TargetKeys(wanted, key_of(path_of(self._paths, wanted)))

    def mark(self, place: TargetKeys) -> OrderMark:
        """Return how far answers about *place* have come; to be called before it is requested."""
        wanted = place.target
        if wanted.kind is not Kind.MEMBER:
            return self._calls.orders.mark(place.key)
        return self._calls.orders.mark(place.key, within=group_key(self._paths, wanted.scope))

    def order(self, index: int, sent: OrderMark) -> int:
        """Return the order of an answer, given `mark` of its place as it was when it was sent."""
        return self._calls.orders.of(index, sent)

    def snapshot(self, target: Target) -> Future[Snapshot]:
        """Return the state of *target*."""
        return self._calls.on_demand(partial(self.read, self.place(target)))

    def look(self, place: TargetKeys, requests: OperationRequests) -> tuple[int, Content]:
        """Return the content of *place*, and its order."""
        sent = self.mark(place)
        index, items = requests.ask(
            TypedRequest("GET", place.url, _index_and_list, answers=OK_OR_ABSENT)
        )
        return self.order(index, sent), place.content(items)

    def read(self, place: TargetKeys, requests: OperationRequests) -> Snapshot:
        """Return the state of *place*."""
        order, content = self.look(place, requests)
        return Snapshot(order, *content)


def _index_and_list(answer: Answer) -> tuple[int, Sequence[Any]]:
    return index_of(answer), listed(answer)


def _unescaped(segment: str) -> str:
    # Most names need no unescaping, and a cache lookup would cost more than that.
    plain = "=" not in segment and "." not in segment
    return unescape(segment) if plain else _unescaped_anyway(segment)


@lru_cache(maxsize=8192)
def _unescaped_anyway(segment: str) -> str:
    return unescape(segment)
