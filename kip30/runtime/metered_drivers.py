"""Drivers that measure each request and pass it on; see `kip30.metrics`.

Without metrics the drivers of the backend are used as they are, so that a request costs no more.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, NamedTuple, TypeVar

from typing_extensions import override

from kip30.driver import (
    Backend,
    ElectionDriver,
    MembershipDriver,
    ObserveDriver,
    StorageDriver,
    Watch,
)
from kip30.driver.kit.futures import Completed
from kip30.driver.records import (
    Claim,
    Condition,
    Entry,
    HeldByOther,
    NamePage,
    Snapshot,
    Target,
    Version,
    Write,
)
from kip30.errors import (
    ClosedError,
    DefiniteError,
    UnavailableError,
    UnsupportedError,
    UsageError,
)
from kip30.metrics import definitions
from kip30.metrics.instruments import HistogramFamily, HistogramSeries
from kip30.names import Key

T = TypeVar("T")

_FUTURE: type[Future[Any]] = Future

_OPERATIONS = {
    Condition.ABSENT: "put",
    Condition.PRESENT: "update",
    Condition.ANY: "set",
}
"""The method of `kip30.Storage` that makes a write with this condition."""


class Drivers(NamedTuple):
    """The four drivers of an open backend."""

    storage: StorageDriver
    membership: MembershipDriver
    election: ElectionDriver
    observe: ObserveDriver


def plain(backend: Backend) -> Drivers:
    """Return the drivers of *backend*."""
    return Drivers(backend.storage, backend.membership, backend.election, backend.observe)


class RequestTimes:
    """Measures the requests of one client. Thread-safe."""

    def __init__(self, patience_seconds: float) -> None:
        """Count a request that its caller cancels only if it has waited *patience_seconds*."""
        self.durations: HistogramFamily = HistogramFamily(definitions.OPERATION_DURATION)
        # When the store was last heard of, by `time.monotonic`. Any thread writes.
        self.seen_at: float = time.monotonic()
        self._patience = patience_seconds

    def measure(
        self, operation: str, request: Callable[..., Future[T]], *arguments: Any
    ) -> Future[T]:
        """Return what *request* returns, and count it when that is done."""
        began = time.monotonic()
        try:
            future = request(*arguments)
        except Exception as error:
            self.failed(operation, began, error)
            raise
        self.follow(operation, began, future)
        return future

    def measure_each(
        self, operations: Sequence[str], request: Callable[[], list[Future[T]]]
    ) -> list[Future[T]]:
        """Return what *request* returns, a future of each of *operations*, and count them."""
        began = time.monotonic()
        try:
            futures = request()
        except Exception as error:
            for operation in operations:
                self.failed(operation, began, error)
            raise
        for operation, future in zip(operations, futures, strict=True):
            self.follow(operation, began, future)
        return futures

    def follow(self, operation: str, began: float, future: Future[Any]) -> None:
        """Count a request that *began* then, when its *future* is done.

        A lazy future is not sent for that, here or in `_done`: only its own methods would do so.
        """
        if isinstance(future, Completed):
            self._count(operation, began, _outcome_of(future.result()))
        else:
            _FUTURE.add_done_callback(future, partial(self._done, operation, began))

    def failed(self, operation: str, began: float, error: BaseException) -> None:
        """Count a request that *began* then and failed with *error*."""
        outcome = _outcome_of_failure(error)
        if outcome:
            self._count(operation, began, outcome)

    def _done(self, operation: str, began: float, future: Future[Any]) -> None:
        try:
            error = _FUTURE.exception(future)
        except CancelledError:
            if time.monotonic() - began >= self._patience:
                self._count(operation, began, "unavailable" if operation in _READS else "unknown")
            return
        if error is not None:
            self.failed(operation, began, error)
        elif operation == _CLAIM:
            self._count(operation, began, _outcome_of(_FUTURE.result(future)))
        else:
            self._count(operation, began, "ok")

    def _count(self, operation: str, began: float, outcome: str) -> None:
        now = time.monotonic()
        self.durations.series(operation, outcome).observe(now - began)
        if outcome in _ANSWERED:
            self.seen_at = now


_CLAIM = "claim"
"""The operation whose answer may be a refusal."""
_READS = {"get", "list", "snapshot"}
"""The operations that change nothing: if they are cancelled, nothing may have been done."""
_ANSWERED = {"ok", "refused"}


def _outcome_of(answer: object) -> str:
    return "refused" if isinstance(answer, HeldByOther) else "ok"


def _outcome_of_failure(error: BaseException) -> str:
    """Return the outcome of a request that failed; empty if it is not to be counted."""
    if isinstance(error, ClosedError):  # this client has ended the request
        return ""
    if isinstance(error, UnavailableError):
        return "unavailable"
    is_refusal = isinstance(error, DefiniteError | UsageError | UnsupportedError)
    return "refused" if is_refusal else "unknown"


class _MeteredStorage(StorageDriver):
    def __init__(self, driver: StorageDriver, times: RequestTimes) -> None:
        self._driver = driver
        self._times = times
        self._quick_reads: HistogramSeries = times.durations.series("get", "ok")

    @override
    def read(self, keys: Sequence[Key]) -> Future[list[Entry | None]]:
        # As `RequestTimes.measure` does it, but in less time: the embedded store answers in 8 us.
        times, began = self._times, time.monotonic()
        try:
            future = self._driver.read(keys)
        except Exception as error:
            times.failed("get", began, error)
            raise
        if isinstance(future, Completed):
            times.seen_at = now = time.monotonic()
            self._quick_reads.observe(now - began)
        else:
            times.follow("get", began, future)
        return future

    @override
    def write(self, write: Write) -> Future[Version]:
        return self._times.measure(_operation(write), self._driver.write, write)

    @override
    def write_many(self, writes: Sequence[Write]) -> list[Future[Version]]:
        operations = [_operation(write) for write in writes]
        return self._times.measure_each(operations, lambda: self._driver.write_many(writes))

    @override
    def list_names(self, namespace: str, after: str, limit: int) -> Future[NamePage]:
        return self._times.measure("list", self._driver.list_names, namespace, after, limit)


class _MeteredMembership(MembershipDriver):
    def __init__(self, driver: MembershipDriver, times: RequestTimes) -> None:
        self._driver = driver
        self._times = times
        # In place of the attribute of the class, which is the driver's own.
        vars(self)["removal_ends_lease"] = driver.removal_ends_lease

    @override
    def claim(self, group: str, member_id: str, nonce: str, data: bytes) -> Future[Claim]:
        return self._times.measure("join", self._driver.claim, group, member_id, nonce, data)

    @override
    def replace(self, group: str, claim: Claim, nonce: str, data: bytes) -> Future[Claim]:
        replace = self._driver.replace
        return self._times.measure("update_member", replace, group, claim, nonce, data)

    @override
    def release(self, group: str, claim: Claim) -> Future[None]:
        return self._times.measure("leave", self._driver.release, group, claim)

    @override
    def release_many(self, group: str, claims: Sequence[Claim]) -> list[Future[None]]:
        operations = ["leave"] * len(claims)
        return self._times.measure_each(
            operations, lambda: self._driver.release_many(group, claims)
        )


class _MeteredElection(ElectionDriver):
    def __init__(self, driver: ElectionDriver, times: RequestTimes) -> None:
        self._driver = driver
        self._times = times
        vars(self)["forms_line"] = driver.forms_line  # as above

    @override
    def claim(
        self, service: str, candidate: str, nonce: str, data: bytes
    ) -> Future[Claim | HeldByOther]:
        return self._times.measure(_CLAIM, self._driver.claim, service, candidate, nonce, data)

    @override
    def release(self, service: str, claim: Claim) -> Future[None]:
        return self._times.measure("resign", self._driver.release, service, claim)


class _MeteredObserve(ObserveDriver):
    def __init__(self, driver: ObserveDriver, times: RequestTimes) -> None:
        self._driver = driver
        self._times = times

    @override
    def snapshot(self, target: Target) -> Future[Snapshot]:
        return self._times.measure("snapshot", self._driver.snapshot, target)

    @override
    def watch(self, target: Target, sink: Callable[[Snapshot], None]) -> Watch:
        return self._driver.watch(target, sink)


def metered(backend: Backend, times: RequestTimes) -> Drivers:
    """Return drivers that measure the requests to those of *backend* by *times*."""
    return Drivers(
        _MeteredStorage(backend.storage, times),
        _MeteredMembership(backend.membership, times),
        _MeteredElection(backend.election, times),
        _MeteredObserve(backend.observe, times),
    )


def _operation(write: Write) -> str:
    if write.data is None:
        return "delete"
    if isinstance(write.condition, Version):
        return "compare_and_set"
    return _OPERATIONS[write.condition]
