"""Fences: the newest epoch of a service, kept in each partition of records it has fenced off.

A conditional write sees one partition. So a leader that writes with a fence first has its service
note the namespace, then raises the fence there; and who wants to lead next raises all fences that
are noted to the next epoch before it claims that. It does so only once nobody leads, so it harms
nobody; and the claim fails if a namespace was noted meanwhile.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from kip30.driver.kit.following import gathered, then
from kip30.driver.kit.futures import mapped
from kip30.driver.records import Fence
from kip30.errors import FencedError
from kip30_backends.cassandra.call import Answer, Ask
from kip30_backends.cassandra.calls import Calls
from kip30_backends.cassandra.library import Row

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
