"""Observing targets: a read, then a watch; after a gap a read again.

All watches of a backend share one stream of a server. Where the program supplied its own channel,
no pings detect a silent server; then the watchdog sends it a request.
"""

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from kip30.driver.kit.gate import CLOSED
from kip30.driver.kit.lifecycle import do_nothing
from kip30.driver.kit.thread_start import join_others, started
from kip30.driver.kit.timer import Timer
from kip30.driver.kit.watch import NOTHING_DELIVERED, Sink, WatchHandle
from kip30.driver.records import Delta, Snapshot, Target
from kip30.errors import ClosedError, UnavailableError
from kip30_backends.etcd.calls import Calls, TypedRequest, acknowledged
from kip30_backends.etcd.client.channel import RANGE, Channel, Metadata, NoThreadError, failure_of
from kip30_backends.etcd.client.messages import MESSAGES, Event, WatchAnswer
from kip30_backends.etcd.client.private_grpc import GRPC
from kip30_backends.etcd.errors import Failure
from kip30_backends.etcd.observation_order import AnswerOrder, era_of
from kip30_backends.etcd.target_states import Content, KeysAtRevision, TargetKeys, TargetStates

OnEvents = Callable[[list[Event]], None]
OnLost = Callable[[], None]

_CLOSED = Failure("CANCELLED", "")
_ENDED = Failure("UNAVAILABLE", "the server ended the stream")

_Watch = MESSAGES["WatchRequest"]
_Create = MESSAGES["WatchCreateRequest"]
_Cancel = MESSAGES["WatchCancelRequest"]
_Progress = MESSAGES["WatchProgressRequest"]


class RangeWatcher:
    """A range, whose events go to *on_events* by whole revisions; *on_lost*: no more follow."""

    def __init__(self, on_events: OnEvents, on_lost: OnLost) -> None:
        """Start without events."""
        self.on_events = on_events
        self.on_lost = on_lost
        self.fragments: list[Event] = []


class WatchStream:
    """Receives until it ends, by itself or by `close`. It is never reopened. Thread-safe.

    Attributes:
        channel: Its channel.
        is_closed: Whether it was closed.
        failure: How it ended, once it did.
    """

    def __init__(self, channel: Channel, metadata: Metadata) -> None:
        """Open it on *channel*.

        Raises:
            ValueError: The channel is closed.
        """
        self.channel = channel
        self.is_closed = False
        self.failure = _ENDED
        # The requests that gRPC's thread sends; None ends that thread.
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # Watches are numbered by this client, so none is missed before the server has answered.
        self._numbers = itertools.count(1)
        # Added and removed by any thread, one key at a time; read by the receiving one.
        self._watchers: dict[int, RangeWatcher] = {}
        self._rpc = channel.watch(iter(self._requests.get, None), metadata)

    def listen(self, key: bytes, end: bytes, revision: int, watcher: RangeWatcher) -> int:
        """Call *watcher* for changes of a range from *revision* on; return what `ignore` takes."""
        number = next(self._numbers)
        self._watchers[number] = watcher
        self.watch(number, key, end, revision)
        return number

    def watch(self, number: int, key: bytes, end: bytes, revision: int) -> None:
        """Request changes of a range from *revision* on; answers have *number*."""
        create = _Create(
            key=key, range_end=end, start_revision=revision, watch_id=number, fragment=True
        )
        self._requests.put(_Watch(create_request=create))

    def ask_progress(self) -> None:
        """Request the progress of all watches; no answer comes while one of them catches up."""
        self._requests.put(_Watch(progress_request=_Progress()))

    def ignore(self, number: int) -> None:
        """Undo `listen`."""
        if self._watchers.pop(number, None) is not None:
            self._requests.put(_Watch(cancel_request=_Cancel(watch_id=number)))

    def run(self) -> None:
        """Deliver responses until the stream ends."""
        for answer in self.answers():
            self._take(answer)

    def answers(self) -> Iterator[WatchAnswer]:
        """Yield responses until the stream ends."""
        try:
            for answer in self._rpc:  # noqa: UP028  a call has no `close`
                yield answer
        except GRPC.call_errors() as error:
            if not self.is_closed:
                self.failure = failure_of(error)
        self._requests.put(None)

    def close(self, failure: Failure = _CLOSED) -> None:
        """End it because of *failure*, and release the threads that serve it."""
        if not self.is_closed:
            self.failure = failure
        self.is_closed = True
        self.channel.cancel(self._rpc)
        self._requests.put(None)

    def _take(self, answer: WatchAnswer) -> None:
        watcher = self._watchers.get(answer.watch_id)
        if answer.canceled:
            self._cancelled(answer, watcher)
        elif watcher is not None and answer.events:
            watcher.fragments.extend(answer.events)
            if not answer.fragment:
                events, watcher.fragments = watcher.fragments, []
                watcher.on_events(events)

    def _cancelled(self, answer: WatchAnswer, watcher: RangeWatcher | None) -> None:
        """Restart a watch whose revision was compacted; otherwise all, on another stream.

        A stream keeps the token it was opened with, so a refused watch would be refused again.
        """
        if watcher is not None:
            self._watchers.pop(answer.watch_id, None)  # `ignore` may have been quicker
        if watcher is not None and answer.compact_revision:
            watcher.on_lost()
        elif watcher is not None or answer.watch_id < 0:
            self.close()


_log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0


class StreamWatchdog:
    """Closes a stream once its server does not answer a call on the same channel either."""

    def __init__(self, stream: WatchStream, calls: Calls, timer: Timer) -> None:
        """Prepare to watch over *stream*."""
        self._stream = stream
        self._calls = calls
        self._timer = timer

    def keep(self) -> None:
        """Send a request after a while, and again until *stream* is closed."""
        self._timer.after(_EVERY_SECONDS, self._ask)

    def _ask(self) -> None:
        if not self._stream.is_closed:
            asked = TypedRequest(RANGE, self._calls.probe, acknowledged)
            self._calls.send(asked).add_done_callback(self._answered)

    def _answered(self, answer: Future[None]) -> None:
        error = answer.exception()
        if isinstance(error, UnavailableError):
            _log.info("reopening the watch, because the server does not respond: %s", error)
            self._stream.close()
        else:
            self.keep()


_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5


class EtcdWatch(WatchHandle):
    """One observation, and the content of its place as far as it was read or received."""

    def __init__(
        self,
        place: TargetKeys,
        sink: Sink,
        orders: AnswerOrder,
        forget: Callable[["EtcdWatch"], None],
    ) -> None:
        """Notify *sink* of *place*; call *forget* in the end."""
        super().__init__(place.target, sink, forget)
        self.place = place
        # Ends the watch on the newest stream. Written by `Watches`, under its condition.
        self.unlisten: Callable[[], None] = do_nothing
        # The content read or received last, and its order, which is later than that of the last
        # state if there was nothing to deliver. Written under the lock.
        self._content = Content({}, {})
        self._reached = NOTHING_DELIVERED
        self._orders = orders

    def read(self, page: KeysAtRevision) -> None:
        """Accept what was read, and deliver it unless it is old."""
        with self.lock:
            if page.order > self._reached:
                content = self.place.content(page.found)
                self.deliver(Snapshot(page.order, *content))
                # Last: what raised is read and delivered again.
                self._reached, self._content = page.order, content

    def changed(self, events: Sequence[Event]) -> None:
        """Apply changes, and deliver the new state."""
        with self.lock:
            order = self._orders.observe(era_of(self._reached), events[-1].kv.mod_revision)
            if order > self._reached:
                self._apply(events, order)
                self._reached = order

    def _apply(self, events: Sequence[Event], order: int) -> None:
        place, before = self.place, self._content
        if not any(place.is_news(event, before) for event in events):
            return
        after = Content(before.entries.copy(), before.unreadable.copy())
        for event in events:
            place.apply(event, after)
        names = frozenset(place.name(event.kv) for event in events)
        delta = Delta(self.order, names) if place.end else None
        self.deliver(Snapshot(order, *after, delta))
        self._content = after


class Watches:
    """All watches of one backend, notified by one thread. Thread-safe."""

    def __init__(self, states: TargetStates, calls: Calls, timer: Timer) -> None:
        """Read from *states*; retry with *timer*."""
        self._states = states
        self._calls = calls
        self._timer = timer
        # All of these are written under the condition.
        self._watches: set[EtcdWatch] = set()
        self._stopped = False
        # The open stream; None between two. Written by the thread.
        self._stream: WatchStream | None = None
        # The thread. It ends when there is no watch; None then, and while none can be started.
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        calls.endpoints.on_move = self._move

    def add(self, target: Target, sink: Sink) -> EtcdWatch:
        """Notify *sink* of *target* from now on.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        self._calls.gate.check()
        watch = EtcdWatch(self._states.place(target), sink, self._calls.orders, self._forget)
        with self._changed:
            if self._stopped:
                raise ClosedError(CLOSED)
            self._watches.add(watch)
            stream = self._stream
            self._need_thread()
        if stream is not None:
            self._begin(watch, stream)
        return watch

    def stop(self) -> None:
        """Close all watches, and accept no more."""
        with self._changed:
            self._stopped = True
            watches = list(self._watches)
            self._changed.notify_all()
        for watch in watches:
            watch.close()
        self._end_stream()

    def join(self) -> None:
        """Wait until the thread has ended, unless called on it."""
        join_others(self._thread)

    def _need_thread(self) -> None:
        """Start the thread unless it runs; later, if the system cannot start one now."""
        if self._thread is None and self._watches and not self._stopped:
            thread = threading.Thread(target=self._run, name="kip30-etcd-watch", daemon=True)
            if started(thread):
                self._thread = thread
            else:
                self._timer.after(_LONGEST_PAUSE, self._try_again)

    def _try_again(self) -> None:
        with self._changed:
            self._need_thread()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while (watch := self._any()) is not None:
            try:
                if self._reaches(watch):
                    pause = _FIRST_PAUSE
                    self._listen()
            except Exception:  # noqa: BLE001  otherwise all watches would end
                _log.exception("all watched targets are read again")
            self._wait(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)

    def _any(self) -> EtcdWatch | None:
        """Return a watch if there is any; otherwise end the thread."""
        with self._changed:
            if self._watches and not self._stopped:
                return next(iter(self._watches))
            self._thread = None
            return None

    def _reaches(self, watch: EtcdWatch) -> bool:
        """Return whether the store answers, so that requesting everything makes sense."""
        looked = self._states.look(watch.place, _itself)
        error = looked.exception()
        if error is None:
            _try_to_deliver(watch, looked.result())
        return not isinstance(error, UnavailableError | ClosedError)

    def _listen(self) -> None:
        """Receive for all watches until the stream ends."""
        try:
            stream = WatchStream(self._calls.endpoints.current, self._calls.tokens.metadata)
        except (ValueError, NoThreadError):
            return
        with self._changed:
            self._stream = stream
            watches = list(self._watches)
        try:
            self._move()  # the endpoint that moved before `_stream` was set closed no stream
            for watch in watches:
                self._begin(watch, stream)
            if not stream.channel.is_ours:
                StreamWatchdog(stream, self._calls, self._timer).keep()
            if watches and not self._stopped:
                stream.run()
        finally:
            with self._changed:
                self._stream = None
            stream.close()

    def _wait(self, seconds: float) -> None:
        with self._changed:
            if not self._stopped:
                self._changed.wait(seconds)

    def _begin(self, watch: EtcdWatch, stream: WatchStream) -> None:
        if stream is self._stream and watch in self._watches:
            looked = self._states.look(watch.place, _itself)
            looked.add_done_callback(partial(self._looked, watch, stream))

    def _looked(
        self, watch: EtcdWatch, stream: WatchStream, looked: Future[KeysAtRevision]
    ) -> None:
        again = partial(self._begin, watch, stream)
        later = partial(self._timer.after, _LONGEST_PAUSE, again)
        if looked.exception() is not None:
            _log.info("retrying watch of %s after: %s", watch.place.target, looked.exception())
            later()
            return
        if not _try_to_deliver(watch, looked.result()):
            later()
            return
        place, since = watch.place, looked.result().revision + 1
        number = stream.listen(place.key, place.end, since, RangeWatcher(watch.changed, again))
        with self._changed:
            watch.unlisten = partial(stream.ignore, number)
            wanted = watch in self._watches
        # Closed since: `_forget` found the earlier `unlisten`.
        if not wanted:
            watch.unlisten()

    def _forget(self, watch: EtcdWatch) -> None:
        with self._changed:
            self._watches.discard(watch)
            last = not self._watches
        watch.unlisten()
        if last:
            self._end_stream()

    def _move(self) -> None:
        """Reopen the stream on the server that is now in use."""
        stream = self._stream
        if stream is not None and stream.channel is not self._calls.endpoints.current:
            stream.close()

    def _end_stream(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.close()


def _try_to_deliver(watch: EtcdWatch, page: KeysAtRevision) -> bool:
    """Deliver *page*; return whether it was delivered. Otherwise it must be read again."""
    try:
        watch.read(page)
    except Exception:  # noqa: BLE001  otherwise this watch, or all, would end
        _log.exception("%s will be read again", watch.place.target)
        return False
    return True


def _itself(page: KeysAtRevision) -> KeysAtRevision:
    return page
