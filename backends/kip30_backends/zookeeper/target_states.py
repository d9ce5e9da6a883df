"""Reading targets: which nodes they are, and their content, at one moment."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kip30.driver.kit.batch_splitting import RECORDS_AT_FIRST, records_at_once
from kip30.driver.records import Delta, Entry, Kind, Snapshot, Target, Version
from kip30.errors import InvalidNameError, StoreError
from kip30.names import Key, unescape, unescape_all
from kip30_backends.zookeeper.calls import Answer, RequestBatch, Steps
from kip30_backends.zookeeper.client.messages import (
    Exists,
    GetChildren,
    GetData,
    MultiRead,
    Request,
    Znode,
)
from kip30_backends.zookeeper.errors import NoAuth, NoNode, RequestRefused
from kip30_backends.zookeeper.tree import (
    Tree,
    entry_of,
    leader_of,
    member_of,
    require_session,
    version_of,
)

_NODES_AT_ONCE = 5_000
_BYTES_AT_ONCE = 512 * 1024
"""Maximum number of nodes that one request reads, and of bytes of the request: a server refuses
one from 1 MiB on."""
_BYTES_EACH = 16
_MOST_EPOCHS = 1_000


class LeaderState(NamedTuple):
    """The state of a leader: the session of its node, and the service's snapshot."""

    owner: int | None
    snapshot: Snapshot
    answer: Answer


class _Members(NamedTuple):
    """The nodes in a group, and those of the names that were asked for, or None."""

    listed: set[str]
    nodes: Sequence[Znode | NoAuth | None]
    order: int


class TargetStates:
    """Reads targets of one tree. With *watch* a read leaves one-shot watches behind.

    Attributes:
        epochs: The newest epoch of each service that was seen lately: a guess, because each claim
            compares it in the store.
    """

    def __init__(self, tree: Tree) -> None:
        """Read from *tree*."""
        self.epochs: dict[str, int] = {}
        self._tree = tree
        self._paths = tree.paths
        self._readers = {
            Kind.VALUE: self._value,
            Kind.NAMESPACE: self._namespace,
            Kind.GROUP: self._group,
            Kind.MEMBER: self._member,
            Kind.SERVICE: self._service,
        }

    def watched(self, target: Target) -> str:
        """Return the node whose events, with those of its children, signal changes of *target*."""
        match target.kind:
            case Kind.VALUE:
                return self._paths.value(Key(target.scope, target.name))
            case Kind.NAMESPACE:
                return self._paths.namespace(target.scope)
            case Kind.GROUP:
                return self._paths.group(target.scope)
            case Kind.MEMBER:
                return self._paths.member(target.scope, target.name)
            case Kind.SERVICE:
                return self._tree.leader(target.scope)

    def read(self, target: Target, *, watch: bool = False, fresh: bool = False) -> Steps[Snapshot]:
        """Read *target*, as the server knows it or, if *fresh*, as the leader does.

        Raises:
            StoreError: Others may change the node that its records are in.
        """
        steps = self._readers[target.kind](target, watch=watch, fresh=fresh)
        return self._tree.checked([self._above(target)], steps)

    def _above(self, target: Target) -> str:
        """Return the node that the records of *target* are in."""
        match target.kind:
            case Kind.VALUE | Kind.NAMESPACE:
                return self._paths.namespace(target.scope)
            case Kind.GROUP | Kind.MEMBER:
                return self._paths.group(target.scope)
            case Kind.SERVICE:
                return self._paths.service(target.scope)

    def changed(self, target: Target, before: Snapshot, nodes: Collection[str]) -> Steps[Snapshot]:
        """Read *nodes* alone, children of the node that *target* is: all else is as *before*."""
        path, names = self.watched(target), sorted(nodes)
        if target.kind is Kind.NAMESPACE:
            # A server reads several nodes at one moment, but does not look whether they exist.
            answer = yield RequestBatch(
                tuple(Exists(f"{path}/{name}") for name in names), fresh=False
            )
            found = map(_found, answer.outcomes)
            listed = [name for name, stat in zip(names, found, strict=True) if stat is not None]
            there, unreadable = unescaped(listed)
            entries = dict.fromkeys(there, _NAME_ALONE)
        else:
            reads = MultiRead(tuple(GetData(f"{path}/{name}") for name in names))
            answer = yield RequestBatch((reads,), fresh=False)
            entries, unreadable = _read(path, names, [_seen(one) for one in answer.only()])
        return _merged(before, names, entries, unreadable, answer.order)

    def leader(
        self, service: str, *, watch: bool = False, fresh: bool = True
    ) -> Steps[LeaderState]:
        """Read the leader of *service*."""
        path = self._tree.leader(service)
        answer = yield RequestBatch((*_watching(path, watch), GetData(path)), fresh=fresh)
        node = _found(answer.outcomes[-1])
        if node is None:
            return LeaderState(None, Snapshot(answer.order, {}), answer)
        try:
            name, entry = leader_of(node, path)
            require_session(node, path)
        except StoreError as error:
            unreadable = Snapshot(answer.order, {}, {service: str(error)})
            return LeaderState(node.stat.owner, unreadable, answer)
        self.note_epoch(service, entry.version.major)
        return LeaderState(node.stat.owner, Snapshot(answer.order, {name: entry}), answer)

    def note_epoch(self, service: str, epoch: int) -> None:
        """Remember the *epoch* of *service*; all others are forgotten when there are too many."""
        if len(self.epochs) >= _MOST_EPOCHS and service not in self.epochs:
            self.epochs.clear()
        self.epochs[service] = epoch

    def epoch(self, service: str) -> Steps[int | None]:
        """Read the newest epoch of *service*; None if the service never had a candidate."""
        answer = yield RequestBatch((GetData(self._tree.epoch(service)),))
        node = _found(answer.outcomes[0])
        return None if node is None else node.stat.version

    def names(self, path: str, *, watch: bool = False, fresh: bool = True) -> Steps[Answer]:
        """Read the children of *path*; the answer's only outcome is a list of them."""
        answer = yield RequestBatch(
            (*_watching(path, watch), GetChildren(path, watch)), fresh=fresh
        )
        return answer._replace(outcomes=[_found(answer.outcomes[-1]) or []])

    def nodes(self, paths: Sequence[str], *, fresh: bool) -> Steps[list[Znode | None]]:
        """Read the nodes *paths*, in few requests; those of one request at one moment."""
        if not paths:
            return []  # an `RequestBatch` without requests is never answered
        if len(paths) == 1 or not self._tree.modern:
            answer = yield RequestBatch(tuple(GetData(path) for path in paths), fresh=fresh)
            return [_found(outcome) for outcome in answer.outcomes]
        requests = [MultiRead(tuple(map(GetData, part))) for part in _parts(paths)]
        answer = yield RequestBatch(tuple(requests), fresh=fresh)
        parts = [_found(outcome) for outcome in answer.outcomes]
        return [_found(outcome) for part in parts for outcome in part]

    def many(self, paths: Sequence[str]) -> Steps[list[Znode | None]]:
        """Read the nodes *paths*, each as the leader knows it, but not all at one moment."""
        found: list[Znode | None] = []
        while len(found) < len(paths):
            rest = paths[len(found) : len(found) + _most(found)]
            found += yield from self.nodes(rest, fresh=True)
        return found

    def _value(self, target: Target, *, watch: bool, fresh: bool) -> Steps[Snapshot]:
        return (yield from self._one(target, _value, watch=watch, fresh=fresh))

    def _member(self, target: Target, *, watch: bool, fresh: bool) -> Steps[Snapshot]:
        return (yield from self._one(target, member_of, watch=watch, fresh=fresh))

    def _one(
        self, target: Target, read: Callable[[Znode, str], Entry], *, watch: bool, fresh: bool
    ) -> Steps[Snapshot]:
        path = self.watched(target)
        answer = yield RequestBatch((*_watching(path, watch), GetData(path)), fresh=fresh)
        node = _found(answer.outcomes[-1])
        if node is None:
            return Snapshot(answer.order, {})
        try:
            entry = read(node, path)
        except StoreError as error:
            return Snapshot(answer.order, {}, {target.name: str(error)})
        return Snapshot(answer.order, {target.name: entry})

    def _namespace(self, target: Target, *, watch: bool, fresh: bool) -> Steps[Snapshot]:
        answer = yield from self.names(self.watched(target), watch=watch, fresh=fresh)
        names, unreadable = unescaped(answer.only())
        return Snapshot(answer.order, dict.fromkeys(names, _NAME_ALONE), unreadable)

    def _service(self, target: Target, *, watch: bool, fresh: bool) -> Steps[Snapshot]:
        leader = yield from self.leader(target.scope, watch=watch, fresh=fresh)
        return leader.snapshot

    def _group(self, target: Target, *, watch: bool, fresh: bool) -> Steps[Snapshot]:
        """Read all members, and again whenever one has joined in between."""
        path = self.watched(target)
        answer = yield from self.names(path, watch=watch, fresh=fresh)
        names: list[str] = sorted(answer.only())
        while names:
            read = self._pages(path, names) if self._tree.modern else self._each(path, names, watch)
            listed, nodes, order = yield from read
            if listed <= set(names):
                there = [
                    node if name in listed else None
                    for name, node in zip(names, nodes, strict=True)
                ]
                return Snapshot(order, *_read(path, names, there))
            names = sorted(listed | set(names))
        return Snapshot(answer.order, {})

    def _pages(self, path: str, names: Sequence[str]) -> Steps[_Members]:
        """Read the members *names*, all at one moment unless that takes too large a response.

        The list of members is read at one moment with the last page, so those that joined since the
        names were listed are in it. The order is that of the first page: a later change may be in
        another one already, but nothing of that order is missing.
        """
        paths = [f"{path}/{name}" for name in names]
        most = yield from self._most_at_once(paths)
        nodes: list[Znode | NoAuth | None] = []
        orders: list[int] = []
        while True:
            page = next(_parts(paths[len(nodes) : len(nodes) + most]))
            is_last = len(nodes) + len(page) == len(paths)
            listing: list[Request] = [GetChildren(path)] if is_last else []
            answer = yield RequestBatch((MultiRead((*listing, *map(GetData, page))),), fresh=False)
            outcomes = answer.only()
            orders.append(answer.order)
            nodes += map(_seen, outcomes[is_last:])
            if is_last:
                return _Members(set(_found(outcomes[0]) or ()), nodes, orders[0])
            most = _most(nodes)

    def _most_at_once(self, paths: Sequence[str]) -> Steps[int]:
        """Return how many of *paths* a request may read, by the sizes of the first of them."""
        if len(paths) <= RECORDS_AT_FIRST:
            return RECORDS_AT_FIRST
        reads = tuple(map(GetData, paths[:RECORDS_AT_FIRST]))
        answer = yield RequestBatch((MultiRead(reads),), fresh=False)
        return _most([*map(_seen, answer.only())])

    def _each(self, path: str, names: Sequence[str], watch: bool) -> Steps[_Members]:  # noqa: FBT001
        """Read the list of members and then each of *names*, on a server without `MultiRead`."""
        reads = (GetData(f"{path}/{name}", watch) for name in names)
        answer = yield RequestBatch((GetChildren(path), *reads), fresh=False)
        children, *nodes = answer.outcomes
        return _Members(set(_found(children) or ()), [*map(_seen, nodes)], answer.order)


def _merged(
    before: Snapshot,
    nodes: Collection[str],
    entries: Mapping[str, Entry],
    unreadable: Mapping[str, str],
    order: int,
) -> Snapshot:
    """Return the state *before* in which *nodes* are now *entries*, *unreadable* or gone."""
    names = frozenset(unescaped(list(nodes))[0])
    after = {**before.entries, **entries}
    for name in names - entries.keys():
        after.pop(name, None)
    read = names.union(nodes)
    left = {name: why for name, why in before.unreadable.items() if name not in read}
    return Snapshot(order, after, {**left, **unreadable}, Delta(before.order, names))


_NAME_ALONE = Entry(Version(0), "", b"")


def unescaped(children: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the names that *children* stand for, and the reason for each that stands for none."""
    try:
        return unescape_all(children), {}
    except InvalidNameError:
        names: list[str] = []
        unreadable: dict[str, str] = {}
        for child in children:
            try:
                names.append(unescape(child))
            except InvalidNameError as error:
                unreadable[child] = str(error)
        return names, unreadable


def _read(
    path: str, segments: Sequence[str], nodes: Sequence[Znode | NoAuth | None]
) -> tuple[dict[str, Entry], dict[str, str]]:
    """Return the members in *nodes* by id, and the reason for each that cannot be read."""
    entries: dict[str, Entry] = {}
    unreadable: dict[str, str] = {}
    for segment, node in zip(segments, nodes, strict=True):
        name = segment
        try:
            name = unescape(segment)
            if node is not None:
                entries[name] = _member(node, f"{path}/{segment}")
        except (StoreError, InvalidNameError) as error:
            unreadable[name] = str(error)
    return entries, unreadable


def _member(node: Znode | NoAuth, path: str) -> Entry:
    """Return the member whose node is *node*.

    Raises:
        StoreError: It is another program's.
    """
    if isinstance(node, NoAuth):
        raise StoreError(f"{path} belongs to another client: {node}")
    return member_of(node, path)


def _value(node: Znode, path: str) -> Entry:
    return entry_of(node, version_of(node.stat), path)[1]


def _watching(path: str, watch: bool) -> tuple[Request, ...]:  # noqa: FBT001
    """Return the request that notifies of the next change of *path*, whether it exists or not."""
    return (Exists(path, watch=True),) if watch else ()


def _seen(outcome: Any) -> Any:
    """Return what was found of a member; `NoAuth` if that is hidden from this client."""
    return outcome if isinstance(outcome, NoAuth) else _found(outcome)


def _found(outcome: Any) -> Any:
    """Return what was found, or None.

    Raises:
        RequestRefused: It may not be looked for.
    """
    if isinstance(outcome, NoNode):
        return None
    if isinstance(outcome, RequestRefused):
        raise outcome
    return outcome


def _most(found: Sequence[Znode | NoAuth | None]) -> int:
    """Return how many nodes the next request may read, given those *found* so far."""
    sizes = [len(node.data or b"") if isinstance(node, Znode) else 0 for node in found]
    return records_at_once(sizes, _NODES_AT_ONCE)


def _parts(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut *paths* into parts of which each is read by one request."""
    begin = size = 0
    for number, path in enumerate(paths):
        size += len(path.encode()) + _BYTES_EACH
        if number - begin == _NODES_AT_ONCE or size > _BYTES_AT_ONCE:
            yield paths[begin:number]
            begin, size = number, len(path.encode()) + _BYTES_EACH
    yield paths[begin:]
