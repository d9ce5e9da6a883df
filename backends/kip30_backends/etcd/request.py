"""One request to the store: a future that ends in time, and reads that travel together.

A request is sent once, unless it is certain that nothing was done. A read of a single key that is
requested while others are under way joins the next batch.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar, cast

from typing_extensions import override

from kip30.driver.kit.following import attempt, copy
from kip30.driver.kit.futures import failed
from kip30.driver.kit.timer import Timer
from kip30.errors import ClosedError, Kip30Error, LifecycleError, UnavailableError
from kip30_backends.etcd.client import channel, messages
from kip30_backends.etcd.client.channel import RANGE, STATUS, TXN
from kip30_backends.etcd.client.endpoints import Endpoints, Tokens
from kip30_backends.etcd.client.grpc_library import GRPC
from kip30_backends.etcd.client.messages import MESSAGES, RangeAnswer, StatusAnswer, TxnAnswer
from kip30_backends.etcd.errors import (
    Access,
    Failure,
    LeaseGoneError,
    is_stale_token,
    translate,
    was_never_sent,
)
from kip30_backends.etcd.order import Mark, Orders

T = TypeVar("T")

_LEAST_SECONDS = 0.001
_PAUSE = 0.05
_LOST = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
_INTERRUPTED = Failure("UNKNOWN", "interrupted")
_CLOSED = "the backend is closed"


class Ask(NamedTuple, Generic[T]):
    """A request: its method, and what an answer means, given how far answers had come before.

    *read* may return a future, if there is more to ask. *if_gone* is what to do instead, if the
    store does not know the lease of the request. *lease* is the one that keys are put on.
    """

    path: str
    request: Any
    read: Callable[[Any, Mark], T | Future[T]]
    writes: bool = False
    if_gone: Callable[[], Future[T]] | None = None
    lease: int = 0


class Route(NamedTuple):
    """What all calls of a backend share."""

    endpoints: Endpoints
    tokens: Tokens
    orders: Orders
    pulse: Timer
    access: Access


class Call(Future[T]):
    """One call, over one or more attempts.

    It is sent when a caller wants its answer: a caller that waits sends it from its own thread,
    which saves two changes of thread, and waits no longer than it means to; if somebody asks
    whether it is done, or wants to be told, it is left to gRPC's own thread.
    """

    def __init__(self, route: Route, ask: Ask[T], seconds: float) -> None:
        """Have *ask* answered in so many *seconds*."""
        super().__init__()
        self._route = route
        self._ask = ask
        self._until = time.monotonic() + seconds
        self._unsent = threading.Lock()
        self._tried = 0
        self._renewed = False
        self._channel = route.endpoints.current
        self._metadata = route.tokens.metadata
        self._mark = route.orders.latest

    def start(self) -> None:
        """Send the request unless that was done."""
        if self._unsent.acquire(blocking=False):
            self._send()

    def _send(self) -> None:
        self._attempt()

    def seconds_left(self) -> float:
        """Return how long there is until the call must have ended."""
        return max(_LEAST_SECONDS, self._until - time.monotonic())

    def has_time(self) -> bool:
        """Say whether there is time for another attempt."""
        return time.monotonic() + _PAUSE < self._until

    @override
    def result(self, timeout: float | None = None) -> T:
        return super().result(self._here(timeout))

    @override
    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(self._here(timeout))

    @override
    def done(self) -> bool:
        self.start()
        return super().done()

    @override
    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        super().add_done_callback(fn)
        self.start()

    def _here(self, timeout: float | None) -> float | None:
        """Send the request on this thread unless that was done; return what is left to wait."""
        if not self._unsent.acquire(blocking=False):
            return timeout
        begun = time.monotonic()
        self._attempt_here(timeout)
        return timeout and max(0.0, timeout - (time.monotonic() - begun))

    def _attempt_here(self, timeout: float | None) -> None:
        patience = self._prepare()
        patience = patience if timeout is None else min(patience, timeout)
        ask = self._ask
        try:
            answer = self._channel.ask(ask.path, ask.request, patience, self._metadata)
        except GRPC.call_errors() as error:
            self._failed(channel.failure_of(error))
        except ValueError:
            self.fail(ClosedError(_CLOSED))
        except BaseException:
            self.fail(self._translated(_INTERRUPTED))
            raise
        else:
            self.answered(answer)

    def _attempt(self) -> None:
        patience = self._prepare()
        ask = self._ask
        try:
            rpc = self._channel.call(ask.path, ask.request, patience, self._metadata)
        except channel.NoThreadError as error:
            self._failed(Failure("UNKNOWN", str(error)))
        except ValueError:
            self.fail(ClosedError(_CLOSED))
        else:
            rpc.add_done_callback(self._ended)

    def _prepare(self) -> float:
        """Choose a server and return how long it has: not all, as long as there are others."""
        route = self._route
        self._channel = route.endpoints.current
        self._metadata = route.tokens.metadata
        self._mark = route.orders.latest
        self._tried += 1
        left = self.seconds_left()
        others = len(route.endpoints) - self._tried
        if others <= 0:
            return left
        return left * 2 / 3 if self._ask.writes else left / (others + 1)

    def _ended(self, rpc: channel.Rpc) -> None:
        if channel.is_ok(rpc):
            self.answered(rpc.result())
        else:
            self._failed(channel.failure_of(rpc))

    def answered(self, answer: Any) -> None:
        """Be done, with what *answer* means."""
        try:
            result = self._ask.read(answer, self._mark)
        except Exception as error:  # noqa: BLE001  a future carries whatever it is
            self.fail(error)
            return
        if isinstance(result, Future):
            self._follow(cast("Future[T]", result))
        elif self.set_running_or_notify_cancel():
            self.set_result(result)

    def _failed(self, failure: Failure) -> None:
        if is_stale_token(failure) and self._may_renew():
            self._renewed = True
            self._tried -= 1
            self._route.tokens.renew(self._metadata, self.seconds_left(), self._with_new_token)
            return
        if failure.code in _LOST:
            self._route.endpoints.leave(self._channel)
        if not self._may_repeat(failure):
            self._refused(self._translated(failure))
        elif self._tried < len(self._route.endpoints):
            self._attempt()
        elif not self._route.pulse.after(_PAUSE, self._attempt):
            self.fail(ClosedError(_CLOSED))

    def _refused(self, error: Kip30Error) -> None:
        if isinstance(error, LeaseGoneError) and self._ask.if_gone is not None:
            self._follow(attempt(self._ask.if_gone))
        else:
            self.fail(error)

    def _follow(self, other: Future[T]) -> None:
        other.add_done_callback(lambda last: copy(last, self))

    def _may_renew(self) -> bool:
        asked = self._renewed or self._ask.path == channel.AUTHENTICATE
        return self._route.tokens.renewable and not asked

    def _may_repeat(self, failure: Failure) -> bool:
        """Say whether there is time to try once more, and no harm in it."""
        if self.cancelled() or not self.has_time():
            return False
        return was_never_sent(failure) or (failure.code in _LOST and not self._ask.writes)

    def _with_new_token(self, error: Kip30Error | None) -> None:
        if error is None:
            self._attempt()
        else:
            self.fail(error)

    def _translated(self, failure: Failure) -> Kip30Error:
        return translate(
            failure,
            wrote=self._ask.writes,
            access=self._route.access,
            server=self._channel.server,
            lease=self._ask.lease,
        )

    def fail(self, error: BaseException) -> None:
        """Be done, with *error*."""
        if self.set_running_or_notify_cancel():
            self.set_exception(error)


MAX_OPS = 128
"""How many operations etcd takes in one transaction, with its own settings."""

_MAX_UNDER_WAY = 4


class Read(Call[T]):
    """A read of one key: a call of its own for who waits for it at once, else one of a batch."""

    def __init__(
        self, route: Route, batches: "Batches", key: bytes, read: Callable[[RangeAnswer], T]
    ) -> None:
        """Read *key*; *read* is what the answer means."""

        def meaning(answer: RangeAnswer, _sent: Mark) -> T:
            return read(answer)

        ask = Ask(RANGE, messages.read(key), meaning)
        super().__init__(route, ask, batches.seconds)
        self.key = key
        self._batches = batches

    @override
    def _send(self) -> None:
        self._batches.add(self)


class Batches:
    """Has few requests under way at a time; what comes meanwhile goes with the next one."""

    def __init__(self, route: Route, seconds: float) -> None:
        """Have every read answered in so many *seconds*."""
        self.seconds = seconds
        self._route = route
        self._waiting: deque[Read[Any]] = deque()
        self._under_way = 0
        self._lock = threading.Lock()

    def add(self, read: Read[Any]) -> None:
        """Send *read*, now or with others."""
        with self._lock:
            self._waiting.append(read)
            if self._under_way == _MAX_UNDER_WAY:
                return
            self._under_way += 1
        self._send_next()

    def _send_next(self) -> None:
        """Send what is waiting, or take note that one request less is under way."""
        with self._lock:
            reads = [self._waiting.popleft() for _ in range(min(MAX_OPS, len(self._waiting)))]
            if not reads:
                self._under_way -= 1
                return
        request = messages.txn([], [messages.find(read.key) for read in reads])
        batch = Call(self._route, Ask(TXN, request, _whole), reads[0].seconds_left())
        batch.add_done_callback(partial(self._answered, reads))

    def _answered(self, reads: list[Read[Any]], batch: Future[TxnAnswer]) -> None:
        self._send_next()
        error = batch.exception()
        if error is not None:
            self._failed(reads, error)
            return
        for read, answer in zip(reads, batch.result().responses, strict=True):
            read.answered(answer.response_range)

    def _failed(self, reads: list[Read[Any]], error: BaseException) -> None:
        """Fail *reads*, but for those that had only to share the deadline of the first."""
        in_time = reads[0].has_time() or not isinstance(error, UnavailableError)
        for read in reads:
            if in_time or not read.has_time():
                read.fail(error)
            else:
                self.add(read)


def _whole(answer: TxnAnswer, _sent: Mark) -> TxnAnswer:
    return answer


def acknowledged(_answer: Any, _sent: Mark) -> None:
    """Learn nothing from an answer but that it came."""


class Calls:
    """Sends calls to the server in use. Thread-safe.

    Attributes:
        orders: The order of all answers.
        access: Which keys the calls are about.
        seconds: How long a call may take, all its attempts together.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        tokens: Tokens,
        pulse: Timer,
        *,
        seconds: float,
        access: Access,
    ) -> None:
        """Send to *endpoints*, with the token that *tokens* has, what needs *access*."""
        self.endpoints = endpoints
        self.orders = Orders()
        self.tokens = tokens
        self.seconds = seconds
        self.access = access
        self._route = Route(endpoints, tokens, self.orders, pulse, access)
        self._batches = Batches(self._route, seconds)
        self._pid = os.getpid()
        self._closed = False

    def send(self, ask: Ask[T], seconds: float | None = None) -> Future[T]:
        """Return the future answer to *ask*, which ends by the operation timeout or *seconds*.

        Writes are sent at once, reads once a caller wants the answer.
        """
        answer = self.on_demand(ask, seconds)
        if ask.writes:
            answer.done()  # which has it sent
        return answer

    def on_demand(self, ask: Ask[T], seconds: float | None = None) -> Future[T]:
        """Return the same, but send also a write only once a caller wants the answer."""
        refusal = self._refusal()
        return failed(refusal) if refusal else Call(self._route, ask, seconds or self.seconds)

    def batch(self, key: bytes, read: Callable[[RangeAnswer], T]) -> Future[T]:
        """Return the future of *key*, which may share a round trip with others.

        It is sent alone if the caller blocks on it, otherwise batched with other pending reads.
        """
        refusal = self._refusal()
        return failed(refusal) if refusal else Read(self._route, self._batches, key, read)

    def status(self) -> StatusAnswer:
        """Return what the server in use says of itself; raises what a call raises."""
        return self.send(Ask(STATUS, MESSAGES["StatusRequest"](), _status)).result()

    def check(self) -> None:
        """Raise unless calls can be made here and now.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def close(self) -> None:
        """End all calls, and take no more."""
        self._closed = True
        self.endpoints.close()

    def _refusal(self) -> Kip30Error | None:
        if os.getpid() != self._pid:
            return LifecycleError("opened before a fork: open another one in the child")
        return ClosedError("the backend is closed") if self._closed else None


def _status(answer: StatusAnswer, _sent: Mark) -> StatusAnswer:
    return answer
