"""`AbstractCoordinator`: one member of one group, over any store."""

import logging
import os
import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

from typing_extensions import override

from kip30.codecs import STR, Codec, check_codec
from kip30.coordinator.config import GroupConfig
from kip30.coordinator.guarded_storage import GuardedStorage, check_guards
from kip30.coordinator.keys import GroupKeys
from kip30.coordinator.member_guards import MemberGuards
from kip30.coordinator.member_loop import MemberEndedError
from kip30.coordinator.member_status import MemberStatus
from kip30.coordinator.poll_thread import PollThread
from kip30.coordinator.resources import Resources
from kip30.driver import Capability
from kip30.driver.closeable import Closeable
from kip30.election import waiting_seconds
from kip30.errors import (
    ClosedError,
    LifecycleError,
    UnavailableError,
    UnsupportedError,
)
from kip30.locator import PluginLocator

T = TypeVar("T")

log: logging.Logger = logging.getLogger(__name__)

_DEFAULTS = GroupConfig()
_PAUSE = 0.5
"""Seconds that a wait for the thread of `start` lasts before it checks again."""


class AbstractCoordinator(MemberStatus, Closeable):
    """One member of one group (KIP-795, KIP-62, KIP-345, KIP-429). Subclasses say what is divided.

    Thread-safe, but only one thread at a time may `poll`. All methods of `MemberApplication` are
    called on that thread, one at a time; `on_leave_prepare` on the one that closes.

    Promised: one assignment per generation, generations strictly grow, and no other member gets
    the share before `deadline`. That requires clocks that run equally fast within the margin of the
    lease. A callback that takes longer than the rebalance timeout makes the member leave.

    Not promised: that a process stops in time once its share is lost. Writes that must not come
    late go through `storage`, where the store refuses them.

    It must be closed: dropping it leaves its threads running. If its locator is closed first, the
    next poll ends it, as `close` does; the thread of `start` polls soon. It cannot be used in a
    forked child: `is_valid` is false, `close` does nothing, all else raises `LifecycleError`.
    """

    def __init__(
        self, locator: PluginLocator, group_id: str, *, config: GroupConfig = _DEFAULTS
    ) -> None:
        """Prepare a member of *group_id*. Nothing is sent before the first poll.

        Args:
            locator: A started locator; the caller closes it, after this object.
            group_id: At most 236 bytes, after escaping.
            config: Its settings.

        Raises:
            ConfigError: *config* contradicts the locator's session timeout.
            InvalidNameError: *group_id* is not a valid name, or is too long.
            UnsupportedError: The store has no ``compare-and-set``.
            LifecycleError, ClosedError: The locator is not started, or closed.
        """
        context = locator.context
        config.check_session(context.session_timeout_seconds)
        backend = locator.backend
        if Capability.COMPARE_AND_SET not in backend.capabilities:
            raise UnsupportedError(f"store {backend.name!r} does not offer compare-and-set")
        self.group_id = group_id
        self.member_id: str = config.member_id(os.urandom(16).hex())
        self._keys = GroupKeys(group_id)
        self._locator = locator
        self._config = config
        self._clock = context.clock
        self._patience = context.operation_timeout_seconds
        self._pid = os.getpid()
        # Made by the first poll, or `start`: only then can subclasses answer all that it needs.
        self._resources = None
        # Held by the polling thread. Only `close` ever waits for it.
        self._polling = threading.Lock()
        self._poller: int | None = None
        # The thread of `start`; None if the application polls. Written under `_lock`.
        self._thread: PollThread | None = None
        self._has_polled = False
        self._lock = threading.Lock()
        # Set when nothing more may begin, and when everything has ended.
        self._closing = threading.Event()
        self._closed = threading.Event()
        # Whether a static member gives its instance up. Written before `_closing` is set.
        self._gives_instance_up = False
        # Whether a thread has begun to end everything. Written under `_lock`.
        self._is_ending = False

    # -- taking part

    def poll(self, timeout_seconds: float = 0.0) -> bool:
        """Take part in the group for *timeout_seconds*, and return whether the member is stable.

        Joins the group, and its rounds, and calls the application. With 0 it does what can be done
        at once. Ends by *timeout_seconds*, or one operation timeout later while the store does not
        respond: then it returns false. Exceptions of the application are raised here. In both cases
        the next call continues from there.

        Raises:
            GroupError: The group refuses this member: another protocol type, no common protocol,
                or too many members. It is closed.
            FencedInstanceError: Another process has taken the instance. It is closed.
            UsageError: *timeout_seconds* is negative or not a number; or what `metadata` offers
                cannot be used.
            LifecycleError: Another thread polls, or `start` was called, or this is a callback.
            ClosedError: It, or the locator, is closed.
            UnavailableError: The system has no thread to spare. Nothing was done.
        """
        seconds = waiting_seconds(timeout_seconds)
        if self._thread is not None and not self._thread.is_current():
            raise LifecycleError("a thread of its own polls this coordinator: do not poll it")
        return self._poll(self._clock.now() + seconds)

    def ensure_active_group(self, timeout_seconds: float | None = None) -> bool:
        """Poll until the member is stable, and return whether it is within *timeout_seconds*.

        After `start` this waits for the polling thread.

        Raises:
            LifecycleError: This is a callback, which would wait for its own end.
            Kip30Error: As `poll`.
        """
        seconds = waiting_seconds(timeout_seconds)
        if self._poller == threading.get_ident():
            raise LifecycleError("a callback cannot wait for the group: it is polled after it")
        until = self._clock.now() + seconds
        if self._thread is None:
            return self._poll_until_stable(until)
        while True:
            if self.failure is not None:
                raise self.failure
            self._check_usable()
            _ = self._locator.context  # raises once the locator is closed: nothing polls then
            parts = self._present()
            if parts is not None and parts.member.is_stable():
                return True
            left = until - self._clock.now()
            if left <= 0:
                return False
            if parts is None:
                self._closing.wait(min(left, _PAUSE))
            else:
                with parts.share.changed:
                    self._clock.wait(parts.share.changed, min(left, _PAUSE))

    def start(self) -> None:
        """Poll on a separate thread until `close`, `leave`, or the end of the member.

        An exception of the application is logged, and the call is retried after a pause. A final
        failure is logged, and becomes `failure`.

        Raises:
            LifecycleError: It polls already, by `poll` or `start`.
            ClosedError: It is closed.
            UnavailableError: The system has no thread to spare. Nothing was done.
        """
        self._check_usable()
        thread = PollThread(
            lambda: self.poll(self._config.heartbeat_seconds),
            closing=self._closing,
            is_over=self._is_over,
            clock=self._clock,
            name=f"kip30-group-{self.group_id}",
        )
        with self._lock:
            if self._has_polled or self._thread is not None:
                raise LifecycleError("this coordinator is polled already")
            self._thread = thread
            try:
                thread.start()
            except UnavailableError:
                self._thread = None
                raise

    @property
    def poll_failure(self) -> BaseException | None:
        """The error of the last poll of the thread of `start`, which is retried; else None.

        `SystemExit` of a callback, too: it ends nothing on that thread. Also the error of the store
        for which the member tries its last request again.
        """
        thread, parts = self._thread, self._present()
        if thread is not None and thread.failure is not None:
            return thread.failure
        return None if parts is None else parts.member.last_error

    def request_rejoin(self, reason: str) -> None:
        """Report that `metadata` has changed, so that a round is needed. Any thread may call.

        On the leader a round always follows; on other members only if `metadata` returns something
        else. *reason* is for the log.

        Raises:
            ClosedError, LifecycleError: As `poll`.
        """
        self._check_usable()
        log.info("%s asks for a round: %s", self.member_id, reason)
        parts = self._present()
        if parts is not None:
            parts.member.request_rejoin()

    @overload
    def storage(self) -> GuardedStorage[str]: ...
    @overload
    def storage(self, codec: Codec[T]) -> GuardedStorage[T]: ...
    def storage(self, codec: Codec[Any] = STR) -> GuardedStorage[Any]:
        """Return the group's own data, which only a member with its share can write.

        Raises:
            UnsupportedError: The store has no ``guards``.
            UsageError: *codec* is not a codec.
            FencedInstanceError: Another process has the instance of this static member.
            ClosedError, LifecycleError: As `poll`.
        """
        guards = self._guards(codec)
        handle = self._locator.storage(codec)
        return GuardedStorage(
            handle, self._keys, guards.attempts, clock=self._clock, patience=self._patience
        )

    def _guards(self, codec: Codec[Any]) -> MemberGuards:
        self._check_instance()
        self._check_usable()
        check_codec(codec)
        check_guards(self._locator.backend)
        return MemberGuards(self._made(), self._keys)

    def share_lease(self) -> int:
        """Return a file descriptor that keeps the lease of the membership.

        While another process holds a duplicate of it open, the death of this one does not end the
        membership, so no other member gets the share; the session timeout still ends it. It belongs
        to the store: pass a duplicate on, and do not close the original.

        Raises:
            NotMemberError: It is not a member at this moment.
            UnsupportedError: The store does not offer ``lease-sharing``.
            ClosedError, LifecycleError: As `poll`.
        """
        self._check_usable()
        return self._made().requests.share_lease()

    # -- the end

    def leave(self, reason: str = "") -> None:
        """Leave the group permanently: close the member; a static one gives up its instance.

        So its share goes to others at once, without `GroupConfig.static_grace_seconds`. Returns as
        `close` does, which takes one request more for the instance.
        """
        log.info("%s leaves: %s", self.member_id, reason or "asked to")
        self._end(gives_instance_up=True)

    @override
    def close(self) -> None:
        """End the member. Idempotent.

        Calls `on_leave_prepare` first, if it has polled, while the share is still its own. A
        dynamic member then leaves; a static one does, too, but its share waits for the next process
        with its instance. Returns by one operation timeout for a callback that still runs, and one
        for the store; a leave that is not confirmed by then is retried, or the session ends. In a
        callback it returns at once, and the member ends when the callback has returned.
        """
        self._end(gives_instance_up=False)

    def _end(self, *, gives_instance_up: bool) -> None:
        if os.getpid() != self._pid:
            return
        first = self._begin_end(gives_instance_up=gives_instance_up)
        if self._poller == threading.get_ident():
            return  # in a callback: the thread ends it when the callback returns
        if not first:
            if not self._closed.wait(2 * self._patience):
                self._finish(calls=False)  # the first call was interrupted
            return
        is_free = False
        try:
            is_free = self._polling.acquire(timeout=self._patience)
        finally:  # even if the wait is interrupted: no later call would end the member
            try:
                self._finish(calls=is_free)
            finally:
                if is_free:
                    self._polling.release()
        thread = self._thread
        if thread is not None and is_free:
            thread.join(self._patience)

    def _begin_end(self, *, gives_instance_up: bool) -> bool:
        """Let nothing more begin; return whether this is the first call that asks for the end."""
        with self._lock:
            if first := not self._closing.is_set():
                self._gives_instance_up = gives_instance_up
                self._closing.set()
        if (parts := self._present()) is not None:
            parts.share.signal()
        return first

    def _finish(self, *, calls: bool) -> None:
        """End everything that was begun, once; *calls* says whether to call the application."""
        with self._lock:
            parts, is_first, self._is_ending = self._resources, not self._is_ending, True
        if not is_first:
            return
        try:
            if parts is not None and self.failure is None:
                if calls:
                    self._prepare_leave()
                else:
                    log.warning("%s leaves during a callback", self.member_id)
        finally:  # it must leave even if the application is interrupted
            try:
                if parts is not None:
                    parts.close(gives_instance_up=self._gives_instance_up)
            finally:
                self._closed.set()

    def _prepare_leave(self) -> None:
        self._poller = threading.get_ident()  # so that it may use `storage`, and `close`
        try:
            self.on_leave_prepare()
        except Exception:  # it must leave nevertheless
            log.exception("on_leave_prepare raised")
        finally:
            self._poller = None

    # -- polling

    def _poll(self, until: float, *, ends_when_stable: bool = False) -> bool:
        self._check_usable()
        with self._as_poller():
            parts = self._made()
            parts.begin()
            try:
                return parts.member.run(until, ends_when_stable=ends_when_stable)
            except MemberEndedError as end:
                self._closing.set()
                raise end.error from None

    @contextmanager
    def _as_poller(self) -> Generator[None]:
        """Make this the polling thread; at the end, finish if all or the locator was closed."""
        if self._poller == threading.get_ident() or not self._polling.acquire(blocking=False):
            self._check_usable()
            raise LifecycleError("another thread, or a callback's caller, polls: one may at a time")
        self._poller, self._has_polled = threading.get_ident(), True
        try:
            yield
        finally:
            self._poller = None
            try:
                # In a child forked by a callback, the parent's member goes on.
                if os.getpid() == self._pid and self._is_over():
                    self._closing.set()
                    self._finish(calls=True)
            finally:
                self._polling.release()

    def _poll_until_stable(self, until: float) -> bool:
        while True:
            if self._poll(until, ends_when_stable=True):
                return True
            if self._clock.now() >= until:
                return False

    def _is_over(self) -> bool:
        """Return whether no poll can succeed any longer: this, or the locator, is closed."""
        try:
            _ = self._locator.context
        except (ClosedError, LifecycleError):
            return True
        return self._closing.is_set()

    def _committed_generation(self) -> int:
        """Return the last known generation of the group; 0 before the first."""
        parts = self._present()
        state = None if parts is None else parts.share.current().state
        return 0 if state is None else state.generation

    # -- parts

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise LifecycleError("made before a fork: make a coordinator in the child")
        if self._closing.is_set() and self._poller != threading.get_ident():
            raise ClosedError("the coordinator is closed")

    def _made(self) -> Resources:
        """Return the parts of this coordinator, made at the first call."""
        with self._lock:
            if self._resources is None:
                if self._closing.is_set():
                    raise ClosedError("the coordinator is closed")
                self._resources = Resources(
                    self,
                    self._locator,
                    self._keys,
                    member_id=self.member_id,
                    config=self._config,
                    closing=self._closing,
                )
            return self._resources
