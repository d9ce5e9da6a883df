"""One open store with everything the portable classes share: deadlines, threads, leases.

Internal: users see only the `PluginLocator` that made it.
"""

import math
import os
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, wait
from contextlib import ExitStack
from typing import Any, Protocol, TypeVar, cast

from kip30.codecs import Codec
from kip30.driver import Backend, Capability, Context, LeaseSharing
from kip30.driver.kit.futures import Completed, ForwardingFuture
from kip30.driver.kit.lifecycle import end_all
from kip30.driver.kit.thread_start import start_eventually
from kip30.driver.lease import Lease
from kip30.driver.records import Target
from kip30.errors import (
    ClosedError,
    CodecError,
    Kip30Error,
    LifecycleError,
    OutcomeUnknownError,
    UnavailableError,
    UnsupportedError,
    ValueTooLargeError,
)
from kip30.runtime.deadline_wait import SLACK, DeadlineWait
from kip30.runtime.dispatcher import Dispatcher
from kip30.runtime.future_callbacks import Callbacks
from kip30.runtime.late_claim_reads import LateClaimReads
from kip30.runtime.lease_tracker import LeaseTracker
from kip30.runtime.lost_answers import Wait
from kip30.runtime.metered_drivers import Drivers, metered, plain
from kip30.runtime.process_end import ProcessEnd
from kip30.runtime.store_metrics import States, StoreMetrics
from kip30.runtime.subscriptions import Describe, Registrations, Subscription, Subscriptions
from kip30.runtime.term_log import TermLog
from kip30.runtime.term_work import WorkInProgress, present_hold
from kip30.runtime.unreadable import UnreadableLog

T = TypeVar("T")
E = TypeVar("E")


_LAST_WRITE_SECONDS = 1.0
"""Seconds that `OpenStore.close` waits for writes in the background."""


class ActiveClaim(Protocol):
    """A claim, or an attempt to get one, that lasts until it is closed."""

    def close(self) -> None:
        """Stop, locally and at once."""
        ...


class _StoreClaims:
    """All that a client has claimed, members included; see `kip30.runtime.term_work.Holdable`."""

    def __init__(self, held_until: float) -> None:
        self.held_until: float = held_until

    def on_work_begun(self) -> None:
        """Do nothing: it ends no session that is lost."""

    def on_work_done(self) -> None:
        """Do nothing: the close of the store waits for it."""


class OpenStore:
    """An open backend and what surrounds it. Thread-safe; unusable in a forked child."""

    def __init__(
        self,
        backend: Backend,
        context: Context,
        *,
        obeys_directives: bool = False,
        priority: int = 0,
        is_metered: bool = False,
    ) -> None:
        """Take ownership of *backend*.

        Args:
            backend: An open one.
            context: That with which it was opened.
            obeys_directives: Whether candidates obey directives, and note their terms, and members
                obey bans.
            priority: That of candidates which are nominated without one.
            is_metered: Whether to measure what is done.

        Raises:
            UnavailableError: The system has no thread to spare. *backend* is closed.
        """
        self.backend = backend
        self.context = context
        self.obeys_directives = obeys_directives
        self.priority = priority
        name, clock = backend.name, context.clock
        metrics = StoreMetrics(name, context, self) if is_metered else None
        self.metrics: StoreMetrics | None = metrics
        # To be used in place of those of the backend, which measure nothing.
        self.drivers: Drivers = metered(backend, metrics.requests) if metrics else plain(backend)
        observe = self.drivers.observe
        self.dispatcher: Dispatcher = Dispatcher(
            clock, durations=metrics.callbacks if metrics else None
        )
        self.callbacks: Callbacks = Callbacks(self.dispatcher)
        self.subscriptions: Subscriptions = Subscriptions(observe, metrics)
        self.registrations: Registrations = Registrations()
        self.late_claim_reads: LateClaimReads = LateClaimReads(observe, clock)
        self.lease_tracker: LeaseTracker = LeaseTracker(self.dispatcher, name, metrics)
        self.terms: TermLog = TermLog(name, metrics.services if metrics else None)
        self.unreadable: UnreadableLog = UnreadableLog()
        self.work: WorkInProgress = WorkInProgress(context.clock)
        self._patience = context.operation_timeout_seconds * SLACK
        self._pid = os.getpid()
        self._closed = False
        self._is_closing = False
        # Held by the caller that ends the terms, so that no other one closes the store before.
        self._ending = threading.RLock()
        self._gone = threading.Event()
        self._lock = threading.Lock()
        # In the order in which they began: they are closed in the same order each time. With the
        # service that its candidates stand for, if it has any.
        self._active_claims: dict[ActiveClaim, str | None] = {}
        # Keys alone. Each operation on it is atomic.
        self._last_writes: dict[Future[None], None] = {}
        try:
            self.dispatcher.start()
        except BaseException:
            backend.close()
            raise
        self._process_end = ProcessEnd(self.close)

    def check(self) -> None:
        """Raise unless this connection may be used here and now.

        Raises:
            ClosedError: It is closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        if self._closed:
            raise ClosedError("the locator is closed: start a new one")
        if self.is_foreign():
            raise LifecycleError("opened before a fork: start a locator in the child")

    def require(self, capability: Capability) -> None:
        """Raise unless the store has *capability*.

        Raises:
            UnsupportedError: It does not; the message names it.
        """
        if capability not in self.backend.capabilities:
            raise UnsupportedError(f"store {self.backend.name!r} does not offer {capability.value}")

    def share_lease(self, lease: Lease) -> int:
        """Return a descriptor that keeps *lease* for as long as a process has it open.

        Raises:
            UnsupportedError: The store has no such thing.
            UsageError: *lease* has ended.
        """
        self.require(Capability.LEASE_SHARING)
        if not isinstance(self.backend, LeaseSharing):
            raise UnsupportedError(f"store {self.backend.name!r} declares a capability it lacks")
        return self.backend.share(lease)

    def encode(self, codec: Codec[T], value: T) -> bytes:
        """Return *value* as *codec* encodes it.

        Raises:
            CodecError: *value* is not of the codec's type, or the codec did not return bytes.
                Nothing was sent.
            ValueTooLargeError: The store does not accept that many bytes. Nothing was sent.
        """
        data = codec.encode(value)
        if not isinstance(cast("object", data), bytes):
            name, kind = type(codec).__name__, type(data).__name__
            raise CodecError(f"{name}.encode() returned {kind}: it must return bytes")
        limit = self.backend.limits.value_bytes
        if len(data) > limit:
            raise ValueTooLargeError(f"value has {len(data)} bytes: {limit} is the limit")
        return data

    def wait(self, future: Future[T]) -> T:
        """Return the result of a read, by the operation timeout.

        Raises:
            UnavailableError: No answer in time.
            ClosedError: Closed meanwhile.
        """
        if isinstance(future, Completed):  # as all are of the store that is quickest
            answer: T = future.result()
            return answer
        return self._until_timeout(UnavailableError)(future)

    def future(self) -> Future[Any]:
        """Return a future whose callbacks run on threads where they may block."""
        return ForwardingFuture(self.callbacks.call)

    def asking(self) -> Wait:
        """Return a wait for writes, all of them within *one* operation timeout.

        It raises `OutcomeUnknownError` for a write that was not answered in time, and
        `ClosedError` if closed meanwhile.
        """
        return self._until_timeout(OutcomeUnknownError)

    def _until_timeout(self, late: type[Kip30Error]) -> DeadlineWait:
        limit = self.context.operation_timeout_seconds
        return DeadlineWait(self.backend.name, limit, late)

    def subscribe(
        self,
        target: Target,
        describe: Describe[E],
        callback: Callable[[E], object],
        *,
        initial: bool,
    ) -> Subscription[E]:
        """Deliver the events that *describe* makes of changes to *target* from now on.

        *callback* is called once the subscription is started.

        Raises:
            UnavailableError: The current state could not be read. Nothing is registered.
        """
        self.check()
        subscription = Subscription(self.dispatcher, target, describe, callback, self.unreadable)
        feed = self.subscriptions.attach(target, subscription.task)
        try:
            baseline = self.wait(self.drivers.observe.snapshot(target))
        except BaseException:
            self.unsubscribe(subscription)
            raise
        subscription.prepare(feed, baseline, initial=initial)
        return subscription

    def unsubscribe(self, subscription: Subscription[Any]) -> None:
        """Start no call of its callback after this returns."""
        subscription.close()
        self.subscriptions.detach(subscription.target, subscription.task)

    def register(self, active_claim: ActiveClaim, service: str | None = None) -> None:
        """Note *active_claim* until `unregister`, and close it before the store is closed.

        *service* is the one that its candidates stand for.

        Raises:
            ClosedError: It is too late.
        """
        with self._lock:
            if self._closed:
                raise ClosedError("the locator is closed: start a new one")
            self._active_claims[active_claim] = service

    def unregister(self, active_claim: ActiveClaim) -> None:
        """Undo `register`; do nothing if it is not there."""
        with self._lock:
            self._active_claims.pop(active_claim, None)

    def active_claims(self) -> list[ActiveClaim]:
        """Return all that is held."""
        with self._lock:
            return list(self._active_claims)

    def last_write(self) -> Future[None]:
        """Return a future for a write in the background: `close` waits a moment for it."""
        future: Future[None] = Future()
        self._last_writes[future] = None
        future.add_done_callback(lambda done: self._last_writes.pop(done, None))
        return future

    def states(self) -> States:
        """See `kip30.runtime.store_metrics.Readings`."""
        return self.subscriptions.states()

    def candidate_services(self) -> Collection[str]:
        """See `kip30.runtime.store_metrics.Readings`."""
        return {service for service in list(self._active_claims.values()) if service is not None}

    def lease_remaining_seconds(self) -> float | None:
        """See `kip30.runtime.store_metrics.Readings`."""
        seconds = self.lease_tracker.remaining_seconds()
        # Where nothing claims again, a lost session is no longer missed.
        return seconds if seconds or self._active_claims else None

    def is_foreign(self) -> bool:
        """Return whether this belongs to the parent of this forked process."""
        return os.getpid() != self._pid

    def close(self) -> None:
        """End all that was claimed, every listener, thread and the store. Idempotent.

        Terms end at once. They are released in the store when the work under them has let go; if
        it has not by the operation timeout, a thread waits for that, and this returns. A listener
        that calls this does not wait for itself. In a forked child nothing happens: the parent's
        store stays open.
        """
        if self.is_foreign():
            return
        self.end_terms()
        with self._lock:
            first, self._is_closing = not self._is_closing, True
        if first:
            self._process_end.cancel()
            try:
                self._disconnect_when_free()
            finally:
                # Last: a thread that a signal stopped may hold the lock of a handler of the log.
                self.terms.close()
                if self.metrics is not None:
                    self.metrics.exported.end()
        elif not self.dispatcher.owns_this_thread():
            self._gone.wait(self._patience)

    def end_terms(self) -> None:
        """End all that was claimed, and accept no more: locally, at once, without a request.

        Idempotent. `close` does the rest.
        """
        with self._ending, ExitStack() as last_first:
            with self._lock:
                if self._closed:
                    return
                self._closed = True
                active_claims = list(self._active_claims)
            last_first.callback(self._hold_if_asked)
            for active_claim in active_claims:
                last_first.callback(active_claim.close)
            last_first.callback(self.lease_tracker.close)

    def _hold_if_asked(self) -> None:
        hold, context = present_hold(), self.context
        if hold is not None:
            seconds = context.session_timeout_seconds
            hold.keep(
                self.work,
                _StoreClaims(context.clock.now() + seconds),
                seconds - context.margin_seconds,
            )

    def _disconnect_when_free(self) -> None:
        is_free = False
        try:
            is_free = self.work.wait(self.context.operation_timeout_seconds)
        finally:  # also after Ctrl-C: nothing else would end the session, which is being renewed
            if is_free:
                self._disconnect()
            else:
                self._disconnect_on_thread()

    def _disconnect_on_thread(self) -> None:
        name = "kip30-let-go"
        start_eventually(threading.Thread(target=self._disconnect_late, name=name, daemon=True))

    def _disconnect_late(self) -> None:
        try:
            self.work.wait(math.inf)  # at most until the leases would have ended
        finally:
            self._disconnect()

    def _disconnect(self) -> None:
        end_all(
            lambda: wait(list(self._last_writes), _LAST_WRITE_SECONDS),
            self.backend.close,
            lambda: self.dispatcher.close(self._patience),
            self.callbacks.close,
            self._gone.set,
        )
