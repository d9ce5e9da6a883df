"""Whole targets: which keys they are, and what their state is."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from kip30.driver.key_layout import Paths
from kip30.driver.records import Entry, Kind, Snapshot, Target, Version
from kip30.errors import InvalidNameError, StoreError
from kip30.names import Key, unescape
from kip30_backends.consul.client.exchange import OK_OR_ABSENT, Ask, Exchange
from kip30_backends.consul.client.http import Answer
from kip30_backends.consul.election import leader_key
from kip30_backends.consul.membership import group_key
from kip30_backends.consul.order import Mark
from kip30_backends.consul.request import Calls
from kip30_backends.consul.transactions import Record, index_of, key_of, listed, record, target

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
    """The entries of a target by name, and why other keys of it are no such entries."""

    entries: dict[str, Entry]
    unreadable: dict[str, str]


class Place(NamedTuple):
    """The keys of a target: the one at *key*, or all that begin with it."""

    target: Target
    key: str

    @property
    def url(self) -> str:
        """What is asked for to read it."""
        return target(self.key, _OPTIONS.get(self.target.kind, ""))

    def content(self, told: Sequence[Any]) -> Content:
        """Return what Consul's JSON, names or records of this target, tells of."""
        if self.target.kind is Kind.NAMESPACE:
            return self._names(told)
        content = Content({}, {})
        for one in told:
            self._add(record(one), content)
        return content

    def content_of(self, found_there: Record) -> Content:
        """Return what the one record of this target holds."""
        content = Content({}, {})
        self._add(found_there, content)
        return content

    def _names(self, keys: Sequence[str]) -> Content:
        begin = len(self.key)
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

    def _add(self, found_there: Record, content: Content) -> None:
        """Add a record; one that no session holds, as after a restored backup, is no claim."""
        try:
            name, entry = self._entry(found_there)
            if found_there.session or self.target.kind not in _HELD:
                content.entries[name] = entry
        except (StoreError, InvalidNameError) as error:
            content.unreadable[self._shown(found_there)] = str(error)

    def _entry(self, record: Record) -> tuple[str, Entry]:
        nonce, label, data = record.unsealed()
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

    def _shown(self, record: Record) -> str:
        """Return the name of what is no entry: of a key that is none of kip30's, its end."""
        if self.target.kind is not Kind.GROUP:
            return self.target.name or self.target.scope
        segment = record.key[len(self.key) :]
        try:
            return _unescaped(segment)
        except InvalidNameError:
            return segment


class States:
    """The targets of one namespace of the configuration."""

    def __init__(self, paths: Paths, calls: Calls) -> None:
        """Read what *paths* places."""
        self._paths = paths
        self._calls = calls

    def all_of(self, kind: Kind) -> str:
        """Return what the keys of all targets of *kind* begin with."""
        root = key_of(self._paths.root)
        return f"{root}/{_FOLDERS[kind]}/"

    def near(self, place: Place) -> str:
        """Return what the keys of the namespace, group or service of *place* begin with.

        Those of others may begin with it, too: then its bell rings for nothing.
        """
        match place.target.kind:
            case Kind.VALUE | Kind.NAMESPACE:
                return key_of(self._paths.namespace(place.target.scope))
            case Kind.GROUP | Kind.MEMBER:
                return key_of(self._paths.group(place.target.scope))
            case Kind.SERVICE:
                return key_of(self._paths.service(place.target.scope))

    def place(self, wanted: Target) -> Place:
        """Return which keys *wanted* has."""
        match wanted.kind:
            case Kind.VALUE:
                return Place(wanted, key_of(self._paths.value(Key(wanted.scope, wanted.name))))
            case Kind.SERVICE:
                return Place(wanted, leader_key(self._paths, wanted.scope))
            case Kind.MEMBER:
                return Place(wanted, key_of(self._paths.member(wanted.scope, wanted.name)))
            case Kind.NAMESPACE:
                return Place(wanted, f"{key_of(self._paths.namespace(wanted.scope))}/")
            case Kind.GROUP:
                return Place(wanted, group_key(self._paths, wanted.scope))

    def mark(self, place: Place) -> Mark:
        """Return how far answers about *place* have come, to be noted before it is asked for."""
        wanted = place.target
        if wanted.kind is not Kind.MEMBER:
            return self._calls.orders.mark(place.key)
        return self._calls.orders.mark(place.key, within=group_key(self._paths, wanted.scope))

    def order(self, index: int, sent: Mark) -> int:
        """Return the order of an answer, given `mark` of its place as it was when it was sent."""
        return self._calls.orders.of(index, sent)

    def look(self, place: Place, exchange: Exchange) -> tuple[int, Content]:
        """Return what is at *place*, and the order of that."""
        sent = self.mark(place)
        index, told = exchange.ask(Ask("GET", place.url, _told, answers=OK_OR_ABSENT))
        return self.order(index, sent), place.content(told)

    def read(self, place: Place, exchange: Exchange) -> Snapshot:
        """Return the state of *place*."""
        order, content = self.look(place, exchange)
        return Snapshot(order, *content)


def _told(answer: Answer) -> tuple[int, Sequence[Any]]:
    return index_of(answer), listed(answer)


def _unescaped(segment: str) -> str:
    plain = "=" not in segment and "." not in segment
    return unescape(segment) if plain else _unescaped_anyway(segment)


@lru_cache(maxsize=8192)
def _unescaped_anyway(segment: str) -> str:
    return unescape(segment)
