"""Records: one node per key; writes that may travel together are one transaction.

ZooKeeper counts a node's versions from 0 in every life of the node, so a write at a version alone
could meet a later life. Every deletion therefore also writes the namespace's node, whose version
is the *generation*. A life that began after the last deletion in its namespace is the present one
for as long as the generation stays; of an older life it takes one look to know.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.kit.following import copy
from kip30.driver.kit.futures import fail, succeed
from kip30.driver.records import Condition, Entry, Fence, NamePage, Version, Write
from kip30.errors import FencedError, KeyExistsError, KeyMissingError, VersionConflictError
from kip30.names import Key
from kip30_backends.zookeeper.client.jute import Stat
from kip30_backends.zookeeper.client.protocol import Check, Delete, Multi, Node, Request, SetData
from kip30_backends.zookeeper.errors import BadVersion, NodeExists, NoNode, Refused
from kip30_backends.zookeeper.request import Ask, Outbox, Steps
from kip30_backends.zookeeper.snapshots import States, unescaped
from kip30_backends.zookeeper.tree import Tree, entry_of, parent, record, version_of

_MOST = 100
_MOST_BYTES = 256 * 1024


def batches(writes: Sequence[Write]) -> Iterator[list[Write]]:
    """Yield *writes* in their order: creations by the same fence together, all others alone."""
    for alike, group in groupby(writes, _kind):
        members = list(group)
        yield from _packed(members) if alike is not None else ([write] for write in members)


def _kind(write: Write) -> tuple[Fence | None] | None:
    creates = write.condition is Condition.ABSENT and write.data is not None
    return (write.fence,) if creates else None


def _packed(writes: Sequence[Write]) -> Iterator[list[Write]]:
    batch: list[Write] = []
    size = 0
    for write in writes:
        size += len(write.data or b"")
        if batch and (len(batch) == _MOST or size > _MOST_BYTES):
            yield batch
            batch, size = [], len(write.data or b"")
        batch.append(write)
    if batch:
        yield batch


_MOST_PROOFS = 10_000


class Generation(NamedTuple):
    """The state of a namespace's node: its version, and the transaction that made it."""

    number: int
    since: int


class Generations:
    """What one client knows. All of it is compared in the store before it counts."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._newest: dict[str, Generation] = {}
        self._lives: dict[str, int] = {}
        self._checked: dict[str, tuple[int, int]] = {}

    def saw(self, path: str, life: int) -> None:
        """Take note that the node at *path* was once that of *life*."""
        if len(self._lives) > _MOST_PROOFS:
            self._lives.clear()
        self._lives[path] = life

    def proof(self, above: str, path: str, life: int) -> int | None:
        """Return the generation of *above* during which the node at *path* is that of *life*."""
        newest = self._newest.get(above)
        if newest is None or self._lives.get(path) != life:
            return None
        if life > newest.since or self._checked.get(path) == (life, newest.number):
            return newest.number
        return None

    def learn(self, above: str, path: str, life: int, newest: Generation) -> None:
        """Take note that in the generation *newest* the node at *path* is that of *life*."""
        if len(self._checked) > _MOST_PROOFS or len(self._newest) > _MOST_PROOFS:
            self._checked.clear()
            self._newest.clear()
        self._newest[above] = newest
        self._checked[path] = (life, newest.number)
        self.saw(path, life)

    def deleted(self, above: str, newest: Generation) -> None:
        """Take note that a deletion of our own made the generation *newest* of *above*."""
        known = self._newest.get(above)
        if known is None or newest.since > known.since:
            self._newest[above] = newest

    def forget(self, above: str) -> None:
        """Take note that the generation of *above* is another one by now."""
        self._newest.pop(above, None)


T = TypeVar("T")

_MINORS = range(2**31)
"""Data versions of nodes. To a server -1 means any version, so others are never sent."""

_EPOCHS = range(1, 2**31)
"""Epochs that a service can have had; its node is at version 0 until the first one leads."""


class ZookeeperStorage(StorageDriver):
    """Keys and their values."""

    def __init__(self, outbox: Outbox, tree: Tree, states: States) -> None:
        """Keep records in *tree*."""
        self._outbox = outbox
        self._tree = tree
        self._states = states
        self._generations = Generations()

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        paths = self._tree.paths
        steps = self._read([paths.value(key) for key in keys])
        for key in keys:
            steps = self._tree.checked(paths.namespace(key.namespace), steps)
        return self._outbox.start(steps)

    @override
    def write(self, write: Write) -> Future[Version]:
        return self._outbox.start(self._checked([write], self._steps(write)))

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        futures: list[Future[Version]] = []
        for batch in batches(writes):
            if len(batch) == 1:
                futures.append(self.write(batch[0]))
            else:
                futures += self._create_together(batch)
        return futures

    def _checked(self, writes: Iterable[Write], steps: Steps[T]) -> Steps[T]:
        """Return *steps* behind the checks of the nodes in which *writes* happen."""
        paths = self._tree.paths
        for write in writes:
            if write.fence is not None:
                steps = self._tree.checked(paths.service(write.fence.service), steps)
            steps = self._tree.checked(paths.namespace(write.key.namespace), steps)
        return steps

    def _create_together(self, batch: Sequence[Write]) -> list[Future[Version]]:
        """Create all keys in one transaction or, if one of them is refused, each on its own."""
        answers: list[Future[Version]] = [Future() for _ in batch]
        steps = self._checked(batch, self._create_all(batch))
        self._outbox.start(steps).add_done_callback(lambda done: self._deal(batch, answers, done))
        return answers

    def _create_all(self, batch: Sequence[Write]) -> Steps[list[Version] | None]:
        paths = [self._tree.paths.value(write.key) for write in batch]
        requests = [
            self._tree.create(path, record(write.nonce, write.data or b""))
            for path, write in zip(paths, batch, strict=True)
        ]
        while True:
            try:
                stats = yield from self._guarded(batch[0], *requests)
            except NoNode as error:
                yield from self._make_above(paths, parent(paths[error.number]))
            except NodeExists:
                return None
            else:
                return [self._seen(path, stat) for path, stat in zip(paths, stats, strict=True)]

    def _make_above(self, paths: Sequence[str], missing: str) -> Steps[None]:
        """Create *missing*, and all that is missing above the other *paths* in one request."""
        yield from self._tree.make(missing)
        others = sorted({parent(path) for path in paths} - {missing})
        if not others:
            return
        nodes = yield from self._states.nodes(others, fresh=True)
        requests = [
            self._tree.create(path, b"")
            for path, node in zip(others, nodes, strict=True)
            if node is None
        ]
        if requests:
            answer = yield Ask(tuple(requests), writes=True)
            for outcome in answer.outcomes:
                if isinstance(outcome, Refused) and not isinstance(outcome, NodeExists | NoNode):
                    raise outcome

    def _deal(
        self,
        batch: Sequence[Write],
        answers: Sequence[Future[Version]],
        done: Future[list[Version] | None],
    ) -> None:
        error = done.exception()
        versions = None if error is not None else done.result()
        for number, (write, answer) in enumerate(zip(batch, answers, strict=True)):
            if error is not None:
                fail(answer, error)
            elif versions is not None:
                succeed(answer, versions[number])
            else:
                self.write(write).add_done_callback(partial(copy, target=answer))

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        del limit  # a server lists all children or none
        path = self._tree.paths.namespace(namespace)
        return self._outbox.start(self._tree.checked(path, self._list(path, after)))

    def _read(self, paths: Sequence[str]) -> Steps[list[Entry | None]]:
        nodes = yield from self._states.nodes(paths, fresh=True)
        return [self._entry(path, node) for path, node in zip(paths, nodes, strict=True)]

    def _entry(self, path: str, node: Node | None) -> Entry | None:
        if node is None:
            return None
        return entry_of(node, self._seen(path, node.stat), path)[1]

    def _seen(self, path: str, stat: Stat) -> Version:
        self._generations.saw(path, stat.czxid)
        return version_of(stat)

    def _list(self, path: str, after: str) -> Steps[NamePage]:
        answer = yield from self._states.names(path)
        # Code points are in the order of their UTF-8 bytes.
        names = sorted(unescaped(answer.only())[0])
        later = [name for name in names if name > after] if after else names
        return NamePage(later, is_last=True)

    def _steps(self, write: Write) -> Steps[Version]:
        path = self._tree.paths.value(write.key)
        if isinstance(write.condition, Version):
            return self._at_version(write, path, write.condition)
        if write.data is None:
            return self._delete(write, path)
        if write.condition is Condition.ABSENT:
            return self._create(write, path, write.data)
        if write.condition is Condition.PRESENT:
            return self._update(write, path, write.data)
        return self._put(write, path, write.data)

    def _create(self, write: Write, path: str, data: bytes) -> Steps[Version]:
        request = self._tree.create(path, record(write.nonce, data))
        while True:
            try:
                (stat,) = yield from self._guarded(write, request)
            except NoNode:
                yield from self._tree.make(parent(path))
            except NodeExists as error:
                raise KeyExistsError(f"{str(write.key)!r} is there already") from error
            else:
                return self._seen(path, stat)

    def _update(self, write: Write, path: str, data: bytes) -> Steps[Version]:
        try:
            (stat,) = yield from self._guarded(write, SetData(path, record(write.nonce, data)))
        except NoNode as error:
            raise _missing(write) from error
        return self._seen(path, stat)

    def _put(self, write: Write, path: str, data: bytes) -> Steps[Version]:
        """Update or create, whichever it takes."""
        while True:
            for attempt in (self._update, self._create):
                try:
                    return (yield from attempt(write, path, data))
                except (KeyMissingError, KeyExistsError):
                    continue

    def _delete(self, write: Write, path: str) -> Steps[Version]:
        """Delete, and learn the version it had by writing it in the same moment."""
        if write.condition is Condition.ABSENT:
            return (yield from self._delete_absent(write, path))
        last, delete = SetData(path, b""), Delete(path)
        try:
            stat, _, above = yield from self._guarded(
                write, last, delete, SetData(parent(path), b"")
            )
        except NoNode as error:
            raise _missing(write) from error
        self._deleted(path, above)
        return Version(stat.czxid, stat.version - 1)

    def _delete_absent(self, write: Write, path: str) -> Steps[Version]:
        try:
            yield from self._guarded(write, Check(path))
        except NoNode as error:
            raise _missing(write) from error
        raise KeyExistsError(f"{str(write.key)!r} is there")

    def _at_version(self, write: Write, path: str, expected: Version) -> Steps[Version]:
        above = parent(path)
        while True:
            generation = self._generations.proof(above, path, expected.major)
            if generation is None or expected.minor not in _MINORS:
                generation = yield from self._prove(write, path, expected)
            operations = _compared(write, path, expected, generation)
            try:
                results = yield from self._guarded(write, *operations)
            except BadVersion as error:
                if error.number != _COMPARED:
                    raise _conflict(write, expected) from error
                self._generations.forget(above)
            except NoNode as error:
                raise _missing(write) from error
            else:
                if write.data is not None:
                    return version_of(results[1])
                self._deleted(path, results[0])
                return expected

    def _prove(self, write: Write, path: str, expected: Version) -> Steps[int]:
        """Find out whether the key is still in the life of *expected*; return the generation."""
        above = parent(path)
        yield from self._check_fence(write)
        namespace, node = yield from self._states.nodes([above, path], fresh=True)
        if node is None or namespace is None:
            raise _missing(write)
        if version_of(node.stat) != expected:
            raise _conflict(write, expected)
        newest = Generation(namespace.stat.version, namespace.stat.mzxid)
        self._generations.learn(above, path, expected.major, newest)
        return newest.number

    def _deleted(self, path: str, above: Stat) -> None:
        self._generations.deleted(parent(path), Generation(above.version, above.mzxid))

    def _check_fence(self, write: Write) -> Steps[None]:
        if write.fence is not None:
            yield from self._guarded(write, Check(self._tree.paths.service(write.fence.service)))

    def _guarded(self, write: Write, *operations: Request) -> Steps[list[Any]]:
        """Do *operations* together, by the fence if there is one, and return their results.

        Raises:
            FencedError: The fence is not the newest epoch.
            Refused: Its number is that among *operations*.
        """
        guard = () if write.fence is None else (self._guard(write.fence),)
        request = Multi((*guard, *operations)) if guard or operations[1:] else operations[0]
        answer = yield Ask((request,), writes=True)
        try:
            result = answer.only()
        except Refused as error:
            if guard and not error.number and isinstance(error, NoNode | BadVersion):
                raise _fenced(write.fence) from error
            raise error.at(error.number - len(guard)) from None
        return result[len(guard) :] if isinstance(request, Multi) else [result]

    def _guard(self, fence: Fence) -> Request:
        if fence.epoch not in _EPOCHS:
            raise _fenced(fence)
        return Check(self._tree.epoch(fence.service), fence.epoch)


_COMPARED = 0


def _compared(write: Write, path: str, expected: Version, generation: int) -> Sequence[Request]:
    """Return what changes the key in the life and at the version that are expected."""
    above = parent(path)
    if write.data is None:
        return SetData(above, b"", generation), Delete(path, expected.minor)
    changed = SetData(path, record(write.nonce, write.data), expected.minor)
    return Check(above, generation), changed


def _missing(write: Write) -> KeyMissingError:
    return KeyMissingError(f"there is no key {str(write.key)!r}")


def _conflict(write: Write, expected: Version) -> VersionConflictError:
    return VersionConflictError(f"{str(write.key)!r} is not at version {expected} any more")


def _fenced(fence: Fence | None) -> FencedError:
    return FencedError(f"{fence} is not the newest epoch of its service")
