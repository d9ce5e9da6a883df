"""One request to the store: a future with a deadline, and batches of reads.

A request is retried only if it is certain that nothing was done. A read of a single key that is
requested while others are under way joins the next batch. A batch that is refused because of some
of its keys is sent again in halves, so that each read fails by its own key.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from typing_extensions import override

from kip30.driver.kit.batch_queue import BatchQueue
from kip30.driver.kit.futures import failed
from kip30.driver.kit.gate import CLOSED, Gate
from kip30.driver.kit.lazy_future import LazyFuture
from kip30.driver.kit.lifecycle import do_nothing
from kip30.driver.kit.time_left import seconds_left, share
from kip30.driver.kit.timer import Timer
from kip30.errors import ClosedError, Kip30Error, UnavailableError
from kip30_backends.etcd.client import channel, messages
from kip30_backends.etcd.client.channel import RANGE, STATUS, TXN
from kip30_backends.etcd.client.endpoints import Endpoints, Tokens
from kip30_backends.etcd.client.messages import MESSAGES, RangeAnswer, StatusAnswer, TxnAnswer
from kip30_backends.etcd.client.private_grpc import GRPC
from kip30_backends.etcd.errors import Access, Failure, is_stale_token, translate, was_never_sent
from kip30_backends.etcd.observation_order import AnswerOrder, OrderMark

T = TypeVar("T")

_PAUSE = 0.05
_LOST = {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
_OF_SOME = {"PERMISSION_DENIED", "RESOURCE_EXHAUSTED"}
"""Codes of refusals of a batch that may be due to some of its keys, or to their number."""
_INTERRUPTED = Failure("UNKNOWN", "interrupted")


class TypedRequest(NamedTuple, Generic[T]):
    """A request: its method, and how to read its answer, given how far answers had come before.

    *lease* is the one that keys are attached to.
    """

    path: str
    request: Any
    read: Callable[[Any, OrderMark], T]
    writes: bool = False
    lease: int = 0


class RequestContext(NamedTuple):
    """Objects that all calls of a backend share."""

    endpoints: Endpoints
    tokens: Tokens
    orders: AnswerOrder
    timer: Timer
    access: Access


class Call(LazyFuture[T]):
    """One call, over one or more attempts.

    A caller that waits sends it from its own thread, and waits no longer than it wants to;
    otherwise gRPC's own thread completes it.
    """

    def __init__(self, context: RequestContext, ask: TypedRequest[T], seconds: float) -> None:
        """Prepare to send *ask*, with a deadline in *seconds*."""
        super().__init__()
        self._context = context
        self._ask = ask
        self._until = time.monotonic() + seconds
        # Attempts follow each other, so one thread at a time writes these.
        # How many attempts there were, and whether one of them led to a new token.
        self._tried = 0
        self._renewed = False
        # The code with which the last attempt failed; empty if none has.
        self.failed_with = ""
        # Of the newest attempt: its server, its token, and how far answers had come.
        self._channel = context.endpoints.current
        self._metadata = context.tokens.metadata
        self._mark = context.orders.latest

    @override
    def send(self) -> None:
        self._attempt()

    def seconds_left(self) -> float:
        """Return how much time is left until the deadline."""
        return seconds_left(self._until)

    def has_time(self) -> bool:
        """Return whether there is time for another attempt."""
        return time.monotonic() + _PAUSE < self._until

    @override
    def send_here(self, timeout: float | None) -> None:
        patience = self._prepare()
        patience = patience if timeout is None else min(patience, timeout)
        ask = self._ask
        try:
            answer = self._channel.ask(ask.path, ask.request, patience, self._metadata)
        except GRPC.call_errors() as error:
            self._failed(channel.failure_of(error))
        except ValueError:
            self.fail(ClosedError(CLOSED))
        except BaseException:  # such as KeyboardInterrupt: the answer is lost
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
            self.fail(ClosedError(CLOSED))
        else:
            rpc.add_done_callback(self._ended)

    def _prepare(self) -> float:
        """Choose a server and return its timeout: less than all the time while there are others."""
        context = self._context
        self._channel = context.endpoints.current
        self._metadata = context.tokens.metadata
        self._mark = context.orders.latest
        self._tried += 1
        others = len(context.endpoints) - self._tried
        return share(self.seconds_left(), others, writes=self._ask.writes)

    def _ended(self, rpc: channel.Rpc) -> None:
        if channel.is_ok(rpc):
            self.answered(rpc.result())
        else:
            self._failed(channel.failure_of(rpc))

    def answered(self, answer: Any) -> None:
        """Complete the call with what *read* makes of *answer*."""
        try:
            result = self._ask.read(answer, self._mark)
        except Exception as error:  # noqa: BLE001  a future carries every error
            self.fail(error)
            return
        if self.set_running_or_notify_cancel():
            self.set_result(result)

    def _failed(self, failure: Failure) -> None:
        self.failed_with = failure.code
        if is_stale_token(failure) and self._may_renew():
            self._renewed = True
            self._tried -= 1  # the server works: retry it once
            self._context.tokens.renew(self._metadata, self.seconds_left(), self._with_new_token)
            return
        # Another server may answer: this one may be a learner, or have too much to do.
        if failure.code in _LOST or was_never_sent(failure):
            self._context.endpoints.leave(self._channel)
        if not self._may_repeat(failure):
            self.fail(self._translated(failure))
        elif self._tried < len(self._context.endpoints):
            self._attempt()
        elif not self._context.timer.after(_PAUSE, self._attempt):
            self.fail(ClosedError(CLOSED))

    def _may_renew(self) -> bool:
        asked = self._renewed or self._ask.path == channel.AUTHENTICATE
        return self._context.tokens.renewable and not asked

    def _may_repeat(self, failure: Failure) -> bool:
        """Return whether a retry has enough time and is safe."""
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
            access=self._context.access,
            server=self._channel.server,
            lease=self._ask.lease,
        )


MAX_OPS = 128
"""Maximum number of operations in one transaction, with etcd's own settings."""

_MAX_UNDER_WAY = 4


class Read(Call[T]):
    """A read of one key: sent alone if a caller waits for it at once, otherwise in a batch."""

    def __init__(
        self,
        context: RequestContext,
        batches: "Batches",
        key: bytes,
        read: Callable[[RangeAnswer], T],
    ) -> None:
        """Read *key*; *read* converts the answer."""

        def meaning(answer: RangeAnswer, _sent: OrderMark) -> T:
            return read(answer)

        ask = TypedRequest(RANGE, messages.read(key), meaning)
        super().__init__(context, ask, batches.seconds)
        self.key = key
        self._batches = batches

    @override
    def send(self) -> None:
        self._batches.add(self)


class Batches:
    """Sends reads: alone while there are few, otherwise many in a request."""

    def __init__(self, context: RequestContext, seconds: float) -> None:
        """Give every read *seconds*."""
        self.seconds = seconds
        self._context = context
        self._queue: BatchQueue[Read[Any]] = BatchQueue(most=MAX_OPS, under_way=_MAX_UNDER_WAY)

    def add(self, read: Read[Any]) -> None:
        """Send *read*, now or with others."""
        if self._queue.add(read):
            self._send_next()

    def _send_next(self) -> None:
        reads = self._queue.take()
        if reads:
            self._send(reads, lambda _: self._send_next())

    def _send(self, reads: list[Read[Any]], then: Callable[[object], object] = do_nothing) -> None:
        """Send *reads* in one request; call *then* once there is an answer."""
        request = messages.txn([], [messages.find(read.key) for read in reads])
        batch = Call(self._context, TypedRequest(TXN, request, itself), reads[0].seconds_left())
        batch.add_done_callback(then)
        batch.add_done_callback(partial(self._answered, reads, batch))

    def _answered(self, reads: list[Read[Any]], batch: Call[TxnAnswer], _done: object) -> None:
        error = batch.exception()
        if error is None:
            for read, answer in zip(reads, batch.result().responses, strict=True):
                read.answered(answer.response_range)
        elif batch.failed_with in _OF_SOME and len(reads) > 1:
            middle = len(reads) // 2
            self._send(reads[:middle])
            self._send(reads[middle:])
        else:
            self._failed(reads, error)

    def _failed(self, reads: list[Read[Any]], error: BaseException) -> None:
        """Fail *reads*, except those that only shared the deadline of the first."""
        in_time = reads[0].has_time() or not isinstance(error, UnavailableError)
        for read in reads:
            if in_time or not read.has_time():
                read.fail(error)
            else:
                self.add(read)


def itself(answer: T, _sent: OrderMark) -> T:
    """Return the answer as it is."""
    return answer


def acknowledged(_answer: Any, _sent: OrderMark) -> None:
    """Ignore the content of an answer."""


class Calls:
    """Sends calls to the server in use. Thread-safe.

    Attributes:
        orders: The order of all answers.
        gate: Whether calls can be made.
        access: Which keys the calls are about.
        probe: A small read that the user has permission for.
        seconds: How long a call may take, all its attempts together.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        tokens: Tokens,
        timer: Timer,
        *,
        seconds: float,
        access: Access,
    ) -> None:
        """Send to *endpoints*, with the token of *tokens*; the keys need *access*."""
        self.endpoints = endpoints
        self.orders = AnswerOrder()
        self.tokens = tokens
        self.seconds = seconds
        self.access = access
        self.probe = messages.page(access.prefix.encode(), b"", limit=1, names_only=True)
        self._context = RequestContext(endpoints, tokens, self.orders, timer, access)
        self._batches = Batches(self._context, seconds)
        self.gate = Gate()

    def send(self, ask: TypedRequest[T], seconds: float | None = None) -> Future[T]:
        """Return the future answer to *ask*, which ends by the operation timeout or *seconds*.

        Writes are sent at once, reads once a caller wants the answer.
        """
        answer = self.on_demand(ask, seconds)
        if ask.writes:
            answer.done()  # which sends it
        return answer

    def on_demand(self, ask: TypedRequest[T], seconds: float | None = None) -> Future[T]:
        """Return the same, but send a write also only once a caller wants the answer."""
        refusal = self.gate.refusal()
        return failed(refusal) if refusal else Call(self._context, ask, seconds or self.seconds)

    def batch(self, key: bytes, read: Callable[[RangeAnswer], T]) -> Future[T]:
        """Return the future of *key*, which may share a round trip with others.

        It is sent alone if the caller blocks on it, otherwise batched with other pending reads.
        """
        refusal = self.gate.refusal()
        return failed(refusal) if refusal else Read(self._context, self._batches, key, read)

    def status(self) -> StatusAnswer:
        """Return the status of the server in use; raises what a call raises."""
        answer: StatusAnswer = self.send(
            TypedRequest(STATUS, MESSAGES["StatusRequest"](), itself)
        ).result()
        return answer

    def close(self) -> None:
        """End all calls, and accept no more."""
        self.gate.close()
        self.endpoints.close()
