"""Records: one node per key; writes that may travel together are one transaction.

ZooKeeper counts a node's versions from 0 in every life of the node, so a write at a version alone
could apply to a later life. Every deletion therefore also writes the namespace's node, whose
version is compared with every such write. A life that began after the last deletion in its
namespace is the present one for as long as that version stays; for an older life one read is
needed. Nodes that guard a write are checked likewise: they are in its namespace, so one check
covers all.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from typing_extensions import override

from kip30.driver import StorageDriver
from kip30.driver.kit import refusals
from kip30.driver.kit.batch_splitting import parts
from kip30.driver.kit.futures import copy, fail, succeed
from kip30.driver.kit.record_paths import last_page
from kip30.driver.records import Condition, Entry, Fence, Guard, NamePage, Version, Write
from kip30.errors import KeyExistsError, KeyMissingError
from kip30.names import Key
from kip30_backends.zookeeper.calls import Outbox, RequestBatch, Steps
from kip30_backends.zookeeper.client.jute import Stat
from kip30_backends.zookeeper.client.messages import (
    CheckVersion,
    Delete,
    Multi,
    Request,
    SetData,
    Znode,
)
from kip30_backends.zookeeper.errors import BadVersion, NodeExists, NoNode, RequestRefused
from kip30_backends.zookeeper.target_states import TargetStates, unescaped
from kip30_backends.zookeeper.tree import (
    NamespaceVersion,
    Tree,
    entry_of,
    parent,
    record,
    version_of,
)

_MOST = 100
_MOST_BYTES = 256 * 1024


def batches(writes: Sequence[Write]) -> Iterator[list[Write]]:
    """Yield *writes* in their order: creations by the same fence and guards together.

    All others are alone.
    """
    for alike, group in groupby(writes, _kind):
        members = list(group)
        if alike is None:
            yield from ([write] for write in members)
        else:
            yield from parts(members, _size, most=_MOST, most_bytes=_MOST_BYTES)


def _kind(write: Write) -> tuple[Fence | None, tuple[Guard, ...]] | None:
    creates = write.condition is Condition.ABSENT and write.data is not None
    return (write.fence, write.guards) if creates else None


def _size(write: Write) -> int:
    return len(write.data or b"")


T = TypeVar("T")

_MINORS = range(2**31)
"""Data versions of nodes. To a server -1 means any version, so others are never sent."""

_EPOCHS = range(1, 2**31)
"""Epochs that a service can have had; its node is at version 0 until the first one leads."""


class ZookeeperStorage(StorageDriver):
    """Keys and their values."""

    def __init__(self, outbox: Outbox, tree: Tree, states: TargetStates) -> None:
        """Keep records in *tree*."""
        self._outbox = outbox
        self._tree = tree
        self._states = states
        self._namespaces = tree.namespaces

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        paths = self._tree.paths
        steps = self._read([paths.value(key) for key in keys])
        above = [paths.namespace(key.namespace) for key in keys]
        return self._outbox.start(self._tree.checked(above, steps))

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
        used: list[str] = []
        for write in writes:
            used.append(paths.namespace(write.key.namespace))
            if write.fence is not None:
                used.append(paths.service(write.fence.service))
        return self._tree.checked(used, steps)

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
            answer = yield RequestBatch(tuple(requests), writes=True)
            for outcome in answer.outcomes:
                if isinstance(outcome, RequestRefused) and not isinstance(
                    outcome, NodeExists | NoNode
                ):
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
        return self._outbox.start(self._tree.checked([path], self._list(path, after)))

    def _read(self, paths: Sequence[str]) -> Steps[list[Entry | None]]:
        nodes = yield from self._states.many(paths)
        return [self._entry(path, node) for path, node in zip(paths, nodes, strict=True)]

    def _entry(self, path: str, node: Znode | None) -> Entry | None:
        if node is None:
            return None
        return entry_of(node, self._seen(path, node.stat), path)[1]

    def _seen(self, path: str, stat: Stat) -> Version:
        self._namespaces.saw(path, stat.czxid)
        return version_of(stat)

    def _list(self, path: str, after: str) -> Steps[NamePage]:
        answer = yield from self._states.names(path)
        return last_page(unescaped(answer.only())[0], after)

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
                raise refusals.key_exists(write.key) from error
            else:
                return self._seen(path, stat)

    def _update(self, write: Write, path: str, data: bytes) -> Steps[Version]:
        try:
            (stat,) = yield from self._guarded(write, SetData(path, record(write.nonce, data)))
        except NoNode as error:
            raise refusals.key_missing(write.key) from error
        return self._seen(path, stat)

    def _put(self, write: Write, path: str, data: bytes) -> Steps[Version]:
        """Update or create, whichever is needed."""
        while True:
            for attempt in (self._update, self._create):
                try:
                    return (yield from attempt(write, path, data))
                except (KeyMissingError, KeyExistsError):
                    continue

    def _delete(self, write: Write, path: str) -> Steps[Version]:
        """Delete, and get the version it had by writing it in the same transaction."""
        if write.condition is Condition.ABSENT:
            return (yield from self._delete_absent(write, path))
        last, delete = SetData(path, b""), Delete(path)
        try:
            stat, _, above = yield from self._guarded(
                write, last, delete, SetData(parent(path), b"")
            )
        except NoNode as error:
            raise refusals.key_missing(write.key) from error
        self._deleted(path, above)
        return Version(stat.czxid, stat.version - 1)

    def _delete_absent(self, write: Write, path: str) -> Steps[Version]:
        try:
            yield from self._guarded(write, CheckVersion(path))
        except NoNode as error:
            raise refusals.key_missing(write.key) from error
        raise refusals.key_exists(write.key)

    def _at_version(self, write: Write, path: str, expected: Version) -> Steps[Version]:
        above = parent(path)
        while True:
            above_version = self._namespaces.proof(above, path, expected.major)
            if above_version is None or expected.minor not in _MINORS:
                above_version = yield from self._prove(write, path, expected)
            operations = _compared(write, path, expected, above_version)
            try:
                results = yield from self._guarded(write, *operations)
            except BadVersion as error:
                if error.number != _COMPARED:
                    raise refusals.version_conflict(write.key, expected) from error
                self._namespaces.forget(above)
            except NoNode as error:
                raise refusals.key_missing(write.key) from error
            else:
                if write.data is not None:
                    return version_of(results[1])
                self._deleted(path, results[0])
                return expected

    def _prove(self, write: Write, path: str, expected: Version) -> Steps[int]:
        """Check whether the key is still in the life of *expected*.

        Returns the version of the namespace's node at which it is.
        """
        above = parent(path)
        yield from self._check_first(write)
        # The node of the namespace first: a deletion in between then finds an old version.
        namespace, node = yield from self._states.nodes([above, path], fresh=True)
        if node is None or namespace is None:
            raise refusals.key_missing(write.key)
        if version_of(node.stat) != expected:
            raise refusals.version_conflict(write.key, expected)
        self._namespaces.learn(above, path, expected.major, _namespace_version(namespace.stat))
        return namespace.stat.version

    def _deleted(self, path: str, above: Stat) -> None:
        self._namespaces.deleted(parent(path), _namespace_version(above))

    def _check_first(self, write: Write) -> Steps[None]:
        """Refuse a write for its fence or guards before its condition is checked."""
        paths = self._tree.paths
        if write.fence is not None:
            yield from self._guarded(write, CheckVersion(paths.service(write.fence.service)))
        elif write.guards:
            yield from self._guarded(write, CheckVersion(paths.namespace(write.key.namespace)))

    def _guarded(self, write: Write, *operations: Request) -> Steps[list[Any]]:
        """Do *operations* together, by fence and guards if there are any; return their results.

        Raises:
            FencedError: The fence is not the newest epoch.
            GuardError: A guard has another version, or is gone.
            RequestRefused: Its number is that among *operations*.
        """
        if not write.guards:
            return (yield from self._fenced(write, *operations))
        paths = [self._tree.paths.value(guard.key) for guard in write.guards]
        above, versions = parent(paths[0]), [guard.version.minor for guard in write.guards]
        while True:
            above_version = self._proof_of_guards(write, above, paths)
            if above_version is None:
                above_version = yield from self._prove_guards(write, above, paths)
            checks = CheckVersion(above, above_version), *map(CheckVersion, paths, versions)
            try:
                results = yield from self._fenced(write, *checks, *operations)
            except RequestRefused as error:
                if error.number >= len(checks):
                    raise error.at(error.number - len(checks)) from None
                if not isinstance(error, BadVersion | NoNode):
                    raise
                if error.number != _COMPARED:
                    raise refusals.stale_guard(write.guards[error.number - 1]) from error
                self._namespaces.forget(above)
            else:
                return results[len(checks) :]

    def _proof_of_guards(self, write: Write, above: str, paths: Sequence[str]) -> int | None:
        """Return the version of *above* at which all nodes at *paths* are of the guards' lives."""
        above_version: int | None = None
        for path, (_, version) in zip(paths, write.guards, strict=True):
            proof = self._namespaces.proof(above, path, version.major)
            if proof is None or above_version not in {None, proof} or version.minor not in _MINORS:
                return None
            above_version = proof
        return above_version

    def _prove_guards(self, write: Write, above: str, paths: Sequence[str]) -> Steps[int]:
        """Check whether all guards are still in their lives.

        Returns the version of the namespace's node at which they are.

        Raises: `FencedError`, `GuardError`.
        """
        if write.fence is not None:
            yield from self._fenced(
                write, CheckVersion(self._tree.paths.service(write.fence.service))
            )
        namespace, *nodes = yield from self._states.nodes([above, *paths], fresh=True)
        if namespace is None:
            raise refusals.stale_guard(write.guards[0])
        for path, guard, node in zip(paths, write.guards, nodes, strict=True):
            if node is None or version_of(node.stat) != guard.version:
                raise refusals.stale_guard(guard)
            self._namespaces.learn(
                above, path, guard.version.major, _namespace_version(namespace.stat)
            )
        return namespace.stat.version

    def _fenced(self, write: Write, *operations: Request) -> Steps[list[Any]]:
        """Do *operations* together, by the fence if there is one, and return their results.

        Raises:
            FencedError: The fence is not the newest epoch.
            RequestRefused: Its number is that among *operations*.
        """
        fence = () if write.fence is None else (self._fence_check(write.fence),)
        request = Multi((*fence, *operations)) if fence or operations[1:] else operations[0]
        answer = yield RequestBatch((request,), writes=True)
        try:
            result = answer.only()
        except RequestRefused as error:
            if write.fence and not error.number and isinstance(error, NoNode | BadVersion):
                raise refusals.fenced(write.fence) from error
            raise error.at(error.number - len(fence)) from None
        return result[len(fence) :] if isinstance(request, Multi) else [result]

    def _fence_check(self, fence: Fence) -> Request:
        if fence.epoch not in _EPOCHS:
            raise refusals.fenced(fence)
        return CheckVersion(self._tree.epoch(fence.service), fence.epoch)


_COMPARED = 0


def _namespace_version(above: Stat) -> NamespaceVersion:
    return NamespaceVersion(above.version, above.mzxid)


def _compared(write: Write, path: str, expected: Version, above_version: int) -> Sequence[Request]:
    """Return the operation that changes the key in the expected life and version."""
    above = parent(path)
    if write.data is None:
        return SetData(above, b"", above_version), Delete(path, expected.minor)
    changed = SetData(path, record(write.nonce, write.data), expected.minor)
    return CheckVersion(above, above_version), changed
