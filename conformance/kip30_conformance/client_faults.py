"""The faults of one client: between it and its backend, in its session, and before its watches."""

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from typing_extensions import override

from kip30 import PluginLocator, UnsupportedError
from kip30.driver import Watch
from kip30.driver.records import Snapshot, Target
from kip30_conformance.driver_faults import ALL, DriverFault, Effect, Interposition, wrap

Sink = Callable[[Snapshot], None]


class ClientFaults(Interposition, ABC):
    """Injects faults into one client. Thread-safe.

    A backend may have an attribute ``faults``, for faults that only the backend can cause. Each of
    its methods is optional; checks that need a missing one are skipped:

    * ``expire_session() -> None`` ends the client's session in the store, as if it had run out
      there, without notifying the client;
    * ``pause_renewals() -> AbstractContextManager[None]`` renews the session no more while that
      lasts, as in a hung process;
    * ``between_writes() -> AbstractContextManager[None]`` is for a store whose file a process locks
      while it writes: no thread of the process is in a write while that lasts, so that a check can
      stop the process without stopping the store. If there is this method, a check that stops
      another process stops it again until it is in no write (`ProcessStop`);
    * ``delete_leader(service) -> None`` and ``delete_member(group, member_id) -> None`` remove a
      record as an operator might, behind the back of every client.
    """

    def __init__(self, client: PluginLocator) -> None:
        """Inject faults into *client*."""
        super().__init__(client.backend)
        self._expire = hook(client.backend, "expire_session")
        self._expired = 0

    @abstractmethod
    def cut_off(self) -> AbstractContextManager[None]:
        """Keep this client from the store: no call, renewal or notification gets through.

        Raises:
            UnsupportedError: There is no way to do that to this client. Nothing was done.
        """

    def expire_session(self) -> None:
        """End this client's session in the store, as if it had run out there.

        Raises:
            UnsupportedError: The backend offers no ``expire_session``. Nothing was done.
        """
        self._expire()
        self._expired += 1

    @override
    def counted(self) -> int:
        """Return the calls struck, and the sessions ended: the evidence."""
        return super().counted() + self._expired


class InProcessFaults(ClientFaults):
    """The faults of a client whose connections lead through no proxy."""

    def __init__(self, client: PluginLocator, operation_seconds: float) -> None:
        """Inject faults into *client*, which was just opened with that operation timeout."""
        super().__init__(client)
        self._operation_seconds = operation_seconds
        self._pause_renewals = hook(client.backend, "pause_renewals")
        self._watch_hold = WatchHold()
        wrap(client.backend.observe, "watch", self._watch_hold.watch)

    @override
    def cut_off(self) -> AbstractContextManager[None]:
        return self._cut_off(self._pause_renewals())

    @contextmanager
    def _cut_off(self, pause: AbstractContextManager[object]) -> Generator[None]:
        seconds = self._operation_seconds
        silence = DriverFault(operation=ALL, effect=Effect.CUT_OFF, seconds=seconds, times=None)
        with pause, self._watch_hold.held():
            self.add(silence)
            try:
                yield
            finally:
                self.clear()


def hook(backend: object, name: str) -> Callable[..., Any]:
    """Return the method *name* of the attribute ``faults`` of *backend*.

    If there is none, the returned function raises `UnsupportedError`.
    """
    method = getattr(getattr(backend, "faults", None), name, None)
    if callable(method):
        found: Callable[..., Any] = method
        return found

    def refuse(*_: object) -> None:
        raise UnsupportedError(f"{type(backend).__name__} offers no `faults.{name}`")

    return refuse


class WatchHold:
    """Delays what the watches of one backend deliver. Thread-safe."""

    def __init__(self) -> None:
        """Hold nothing back."""
        self._lock = threading.Lock()
        self._is_holding = False
        self._sinks = set[_HeldSink]()

    def watch(self, real: Callable[[Target, Sink], Watch], target: Target, sink: Sink) -> Watch:
        """Observe *target* with *real*, and deliver to *sink* unless deliveries are held back."""
        with self._lock:
            held = _HeldSink(sink, is_held=self._is_holding)
            self._sinks.add(held)
        try:
            return _HeldWatch(real(target, held), held, self._sinks.discard)
        except BaseException:
            self._sinks.discard(held)
            raise

    @contextmanager
    def held(self) -> Generator[None]:
        """Deliver nothing in the block, and everything in order after it."""
        self._set(is_held=True)
        try:
            yield
        finally:
            self._set(is_held=False)

    def _set(self, *, is_held: bool) -> None:
        with self._lock:
            self._is_holding = is_held
            sinks = list(self._sinks)
        for sink in sinks:
            sink.set_held(is_held=is_held)


class _HeldSink:
    """A queue before a sink: one thread at a time empties it, without holding a lock.

    With a lock held, a sink that closes its watch could wait for the store's watch thread, which
    waits for that lock.
    """

    def __init__(self, sink: Sink, *, is_held: bool) -> None:
        self._sink = sink
        self._changed = threading.Condition()
        # All below is guarded by `_changed`.
        self._is_held = is_held
        self._is_closed = False
        self._queue = deque[Snapshot]()
        self._deliverer: int | None = None

    def __call__(self, state: Snapshot) -> None:
        with self._changed:
            self._queue.append(state)
        self._deliver()

    def set_held(self, *, is_held: bool) -> None:
        """Hold states back or deliver them; returns once deliveries under way are done."""
        with self._changed:
            self._is_held = is_held
            self._changed.wait_for(self._is_idle)
        self._deliver()

    def close(self) -> None:
        """Deliver nothing more, and wait until the sink has returned, unless this is its thread."""
        with self._changed:
            self._is_closed = True
            self._changed.wait_for(self._is_idle)

    def _is_idle(self) -> bool:
        return self._deliverer in {None, threading.get_ident()}

    def _deliver(self) -> None:
        with self._changed:
            if self._deliverer is not None:
                return
            self._deliverer = threading.get_ident()
        try:
            while (state := self._next()) is not None:
                self._sink(state)
        except BaseException:
            self._rest()
            raise

    def _next(self) -> Snapshot | None:
        with self._changed:
            if self._queue and not self._is_held and not self._is_closed:
                return self._queue.popleft()
            self._rest()
            return None

    def _rest(self) -> None:
        with self._changed:  # reentrant
            self._deliverer = None
            self._changed.notify_all()


class _HeldWatch(Watch):
    """A watch that is closed once nothing that was held back can be delivered any longer."""

    def __init__(self, watch: Watch, sink: _HeldSink, forget: Callable[[_HeldSink], None]) -> None:
        self._watch = watch
        self._sink = sink
        self._forget = forget

    @override
    def close(self) -> None:
        self._watch.close()
        self._sink.close()
        self._forget(self._sink)
