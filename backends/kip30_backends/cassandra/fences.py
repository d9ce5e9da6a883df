"""Fences and conditions of writes, and what a refusal means.

A conditional write sees one partition. So a leader that writes with a fence first notes the
namespace in its service, then raises the fence there. A candidate first raises the fence to the
next epoch in every noted namespace, then claims that epoch, and only while the service has no
leader. The claim fails if a namespace was noted meanwhile.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from kip30.driver.kit.following import gathered, then
from kip30.driver.kit.futures import mapped
from kip30.driver.records import Condition, Fence, Version, Write
from kip30.errors import (
    DefiniteError,
    FencedError,
    KeyExistsError,
    KeyMissingError,
    VersionConflictError,
)
from kip30_backends.cassandra.client.library import Row
from kip30_backends.cassandra.request import Answer, Ask, Calls

_EPOCHS = range(1, 2**63)


class Fences:
    """The fences of one namespace of the configuration."""

    def __init__(self, calls: Calls) -> None:
        """Raise fences with *calls*."""
        self._calls = calls

    def erect(self, namespace: str, fence: Fence, until: float) -> Future[None]:
        """Fence *namespace* off for who leads; fails with `FencedError` if that is over."""
        if fence.epoch not in _EPOCHS:
            raise refused(fence)
        noted = self._note(namespace, fence, until)
        return then(noted, lambda _: self._raised(namespace, fence, fence.epoch - 1, until))

    def raise_all(self, namespaces: Iterable[str], fence: Fence, until: float) -> Future[None]:
        """Raise the fence of a service in all *namespaces* to an epoch that is still to come."""
        begun = [self._raised(one, fence, fence.epoch - 1, until) for one in namespaces]
        return mapped(gathered(begun), lambda _: None)

    def _note(self, namespace: str, fence: Fence, until: float) -> Future[None]:
        calls = self._calls

        def read(answer: Answer) -> None:
            if not answer.applied:
                raise refused(fence)

        statement = calls.statements.bind(
            "fence_off", {namespace}, calls.root, fence.service, fence.epoch
        )
        return calls.send(Ask(statement, read, writes=True), until)

    def _raised(
        self, namespace: str, fence: Fence, guess: int | None, until: float
    ) -> Future[None]:
        """Raise one fence from what it is, which is a *guess*, unless it is as high already."""
        calls, (service, epoch) = self._calls, fence

        def read(answer: Answer) -> Future[None] | None:
            if answer.applied:
                return None
            met = height(answer.rows[0], service)
            if met is None or met < epoch:
                return self._raised(namespace, fence, met, until)
            return None

        statement = calls.statements.bind(
            "raise_fence", service, epoch, calls.root, namespace, service, guess
        )
        return calls.send(Ask(statement, read, writes=True), until)


def height(row: Row, service: str) -> int | None:
    """Return how high the fence of *service* is, by a row of its partition."""
    fences: Mapping[str, int] | None = row.get("fences")
    return None if fences is None else fences.get(service)


def refused(fence: Fence) -> FencedError:
    """Return the error for who writes with a fence that is over."""
    return FencedError(f"epoch {fence.epoch} is not the newest of {fence.service!r}, or is over")


_VERSIONS = range(2**63)
_NEVER = -1
"""A version that no record has: those of this store have no minor part."""


def refusal(write: Write, version: int | None, partition: Row) -> DefiniteError | None:
    """Return why a write cannot be done, by what its key's *version* is; None if it could be."""
    if write.fence is not None:
        met = height(partition, write.fence.service)
        if met is None or met < write.fence.epoch:
            return None  # to be found out first
        if met > write.fence.epoch:
            return refused(write.fence)
    return _conflict(write, version)


def _conflict(write: Write, version: int | None) -> DefiniteError | None:
    key, condition = str(write.key), write.condition
    if version is None:
        may_be_absent = condition in {Condition.ABSENT, Condition.ANY} and write.data is not None
        return None if may_be_absent else KeyMissingError(f"there is no key {key!r}")
    if condition is Condition.ABSENT:
        return KeyExistsError(f"{key!r} is there already")
    if isinstance(condition, Version) and condition != Version(version):
        return VersionConflictError(f"{key!r} has version {version}, not {condition}")
    return None


def form(write: Write) -> str:
    """Return by what form of statement the condition of *write* is put."""
    if isinstance(write.condition, Version):
        return "exact"
    if write.data is None or write.condition is Condition.PRESENT:
        return "present"
    return "exact" if write.condition is Condition.ABSENT else "any"


def exactly(condition: Condition | Version) -> tuple[int | None, ...]:
    """Return the version to compare with, if the form of the statement takes one."""
    if isinstance(condition, Version):
        is_possible = condition.major in _VERSIONS and not condition.minor
        return (condition.major if is_possible else _NEVER,)
    return (None,) if condition is Condition.ABSENT else ()
