"""The whole state of a target, read at one moment."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kip30.names import Key, unescape
from kip30.records import Entry, Kind, Snapshot, Target, Version
from kip30_backends.zookeeper.outbox import Answer, Ask, Steps
from kip30_backends.zookeeper.refusals import NoNode, Refused
from kip30_backends.zookeeper.tree import Tree, entry_of, leader_of, version_of
from kip30_backends.zookeeper.wire import Exists, GetChildren, GetData, MultiRead, Node, Request

_NODES_AT_ONCE = 500


class Leader(NamedTuple):
    """What there is to know of a leader: the session it goes with, and the service's snapshot."""

    owner: int | None
    snapshot: Snapshot
    answer: Answer


class States:
    """Reads targets of one tree. With *watch* a read leaves one-shot watches behind.

    Attributes:
        epochs: The newest epoch of each service, as far as it was seen.
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
            Kind.SERVICE: self._service,
        }

    def watched(self, target: Target) -> str:
        """Return the node whose events, with those of its children, tell of *target*."""
        match target.kind:
            case Kind.VALUE:
                return self._paths.value(Key(target.scope, target.name))
            case Kind.NAMESPACE:
                return self._paths.namespace(target.scope)
            case Kind.GROUP:
                return self._paths.group(target.scope)
            case Kind.SERVICE:
                return self._tree.leader(target.scope)

    def read(self, target: Target, *, watch: bool = False, fresh: bool = False) -> Steps[Snapshot]:
        """Read *target*, as the server knows it or, if *fresh*, as the leader does.

        Raises:
            StoreError: Somebody else wrote there.
        """
        return self._readers[target.kind](target, watch=watch, fresh=fresh)

    def leader(self, service: str, *, watch: bool = False, fresh: bool = True) -> Steps[Leader]:
        """Read who leads *service*."""
        path = self._tree.leader(service)
        answer = yield Ask((*_watching(path, watch), GetData(path)), fresh=fresh)
        node = _found(answer.outcomes[-1])
        if node is None:
            return Leader(None, Snapshot(answer.order, {}), answer)
        name, entry = leader_of(node, path)
        self.epochs[service] = entry.version.major
        return Leader(node.stat.owner, Snapshot(answer.order, {name: entry}), answer)

    def epoch(self, service: str) -> Steps[int | None]:
        """Read the newest epoch of *service*; None if nobody ever stood for election."""
        answer = yield Ask((GetData(self._tree.epoch(service)),))
        node = _found(answer.outcomes[0])
        return None if node is None else node.stat.version

    def names(self, path: str, *, watch: bool = False, fresh: bool = True) -> Steps[Answer]:
        """Read the children of *path*; the answer's only outcome is a list of them."""
        answer = yield Ask((*_watching(path, watch), GetChildren(path, watch)), fresh=fresh)
        return answer._replace(outcomes=[_found(answer.outcomes[-1]) or []])

    def nodes(self, paths: Sequence[str], *, fresh: bool) -> Steps[list[Node | None]]:
        """Read the nodes *paths*, in few requests; those of one request at one moment."""
        if len(paths) == 1 or not self._tree.modern:
            answer = yield Ask(tuple(GetData(path) for path in paths), fresh=fresh)
            return [_found(outcome) for outcome in answer.outcomes]
        requests = [MultiRead(tuple(map(GetData, part))) for part in _parts(paths)]
        answer = yield Ask(tuple(requests), fresh=fresh)
        parts = [_found(outcome) for outcome in answer.outcomes]
        return [_found(outcome) for part in parts for outcome in part]

    def _value(self, target: Target, *, watch: bool, fresh: bool) -> Steps[Snapshot]:
        path = self.watched(target)
        answer = yield Ask((*_watching(path, watch), GetData(path)), fresh=fresh)
        node = _found(answer.outcomes[-1])
        if node is None:
            return Snapshot(answer.order, {})
        _, entry = entry_of(node, version_of(node.stat), path)
        return Snapshot(answer.order, {target.name: entry})

    def _namespace(self, target: Target, *, watch: bool, fresh: bool) -> Steps[Snapshot]:
        answer = yield from self.names(self.watched(target), watch=watch, fresh=fresh)
        return Snapshot(answer.order, {unescape(one): _NAME_ALONE for one in answer.only()})

    def _service(self, target: Target, *, watch: bool, fresh: bool) -> Steps[Snapshot]:
        leader = yield from self.leader(target.scope, watch=watch, fresh=fresh)
        return leader.snapshot

    def _group(self, target: Target, *, watch: bool, fresh: bool) -> Steps[Snapshot]:
        """Read all members at one moment: once more whenever someone has joined in between."""
        path = self.watched(target)
        answer = yield from self.names(path, watch=watch, fresh=fresh)
        names: list[str] = sorted(answer.only())
        found: dict[str, Entry] = {}
        while names:
            answer = yield Ask(tuple(self._members(path, names, watch)), fresh=False)
            listed, nodes = self._sorted_out(answer)
            found = dict(_entries(path, names, nodes))
            if listed <= set(names):
                break
            names = sorted(listed | set(names))
        return Snapshot(answer.order, found)

    def _members(self, path: str, names: Sequence[str], watch: bool) -> Iterator[Request]:  # noqa: FBT001
        """Yield requests for all members, and for the list of them at the same moment."""
        if self._tree.modern:
            for part in _parts(names):
                members = (GetData(f"{path}/{name}") for name in part)
                yield MultiRead((GetChildren(path), *members))
        else:
            yield GetChildren(path)
            yield from (GetData(f"{path}/{name}", watch) for name in names)

    def _sorted_out(self, answer: Answer) -> tuple[set[str], list[Node | None]]:
        """Return who is listed in the answer to `_members`, and the nodes that were asked for."""
        parts = answer.outcomes if self._tree.modern else [answer.outcomes]
        listed: set[str] = set()
        nodes: list[Node | None] = []
        for part in parts:
            listed |= set(_found(_found(part)[0]) or ())
            nodes += [_found(outcome) for outcome in part[1:]]
        return listed, nodes


_NAME_ALONE = Entry(Version(0), "", b"")


def _entries(
    path: str, names: Sequence[str], nodes: Sequence[Node | None]
) -> Iterator[tuple[str, Entry]]:
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            _, entry = entry_of(node, Version(node.stat.czxid), f"{path}/{name}")
            yield unescape(name), entry


def _watching(path: str, watch: bool) -> tuple[Request, ...]:  # noqa: FBT001
    """Return what makes the server tell of the next change of *path*, there or not."""
    return (Exists(path, watch=True),) if watch else ()


def _found(outcome: Any) -> Any:
    """Return what was found, or None.

    Raises:
        Refused: It may not be looked for.
    """
    if isinstance(outcome, NoNode):
        return None
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


def _parts(items: Sequence[str]) -> Iterator[Sequence[str]]:
    return (items[start : start + _NODES_AT_ONCE] for start in range(0, len(items), _NODES_AT_ONCE))
