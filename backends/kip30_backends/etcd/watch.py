"""Observing targets: read, then listen; after a gap read again.

All watches of a backend share one stream of a server. Where the program brought its own channel, no
pings notice a server that fell silent; then the watchdog sends it a request.
"""

import itertools
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from typing_extensions import override

from kip30.driver import ObserveDriver, Watch
from kip30.driver.kit.threads import started
from kip30.driver.kit.timer import Timer
from kip30.driver.records import Delta, Snapshot, Target
from kip30.errors import ClosedError, UnavailableError
from kip30_backends.etcd.client import messages
from kip30_backends.etcd.client.channel import RANGE, Channel, Metadata, NoThreadError, failure_of
from kip30_backends.etcd.client.grpc_library import GRPC
from kip30_backends.etcd.client.messages import MESSAGES, Event, WatchAnswer
from kip30_backends.etcd.errors import Failure
from kip30_backends.etcd.order import Orders, era_of
from kip30_backends.etcd.request import Ask, Calls, acknowledged
from kip30_backends.etcd.snapshots import Content, Page, Place, States

Hear = Callable[[list[Event]], None]
Lose = Callable[[], None]

_CLOSED = Failure("CANCELLED", "")
_ENDED = Failure("UNAVAILABLE", "the server ended the stream")

_Watch = MESSAGES["WatchRequest"]
_Create = MESSAGES["WatchCreateRequest"]
_Cancel = MESSAGES["WatchCancelRequest"]
_Progress = MESSAGES["WatchProgressRequest"]


class Ear:
    """Who hears of one range: *hear* gets whole revisions; *lose* is called if no more come."""

    def __init__(self, hear: Hear, lose: Lose) -> None:
        """Have heard nothing yet."""
        self.hear = hear
        self.lose = lose
        self.fragments: list[Event] = []


class Stream:
    """Listens until it ends, by itself or by `close`. It is never taken up again. Thread-safe.

    Attributes:
        channel: What it is a stream of.
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
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._numbers = itertools.count(1)
        self._ears: dict[int, Ear] = {}
        self._rpc = channel.watch(iter(self._requests.get, None), metadata)

    def listen(self, key: bytes, end: bytes, revision: int, ear: Ear) -> int:
        """Have *ear* hear of changes of a range from *revision* on; return what ends that."""
        number = next(self._numbers)
        self._ears[number] = ear
        self.watch(number, key, end, revision)
        return number

    def watch(self, number: int, key: bytes, end: bytes, revision: int) -> None:
        """Ask for changes of a range from *revision* on; answers have *number*."""
        create = _Create(
            key=key, range_end=end, start_revision=revision, watch_id=number, fragment=True
        )
        self._requests.put(_Watch(create_request=create))

    def ask_progress(self) -> None:
        """Ask how far all watches are; there is no answer while one of them catches up."""
        self._requests.put(_Watch(progress_request=_Progress()))

    def ignore(self, number: int) -> None:
        """Undo `listen`."""
        if self._ears.pop(number, None) is not None:
            self._requests.put(_Watch(cancel_request=_Cancel(watch_id=number)))

    def run(self) -> None:
        """Hand on what comes, until the stream ends."""
        for answer in self.answers():
            self._take(answer)

    def answers(self) -> Iterator[WatchAnswer]:
        """Yield what comes, until the stream ends."""
        try:
            for answer in self._rpc:  # noqa: UP028  a call has no `close`
                yield answer
        except GRPC.call_errors() as error:
            if not self.is_closed:
                self.failure = failure_of(error)
        self._requests.put(None)

    def close(self, failure: Failure = _CLOSED) -> None:
        """End it because of *failure*, and let go of the threads that serve it."""
        if not self.is_closed:
            self.failure = failure
        self.is_closed = True
        self.channel.cancel(self._rpc)
        self._requests.put(None)

    def _take(self, answer: WatchAnswer) -> None:
        ear = self._ears.get(answer.watch_id)
        if answer.canceled:
            self._cancelled(answer, ear)
        elif ear is not None and answer.events:
            ear.fragments.extend(answer.events)
            if not answer.fragment:
                events, ear.fragments = ear.fragments, []
                ear.hear(events)

    def _cancelled(self, answer: WatchAnswer, ear: Ear | None) -> None:
        """Begin again with one watch; or with all, if the server does not say which it was."""
        if ear is not None:
            del self._ears[answer.watch_id]
            ear.lose()
        elif answer.watch_id < 0:
            self.close()


_log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0


class StreamWatchdog:
    """Closes a stream once its server does not answer a call on the same channel either."""

    def __init__(self, stream: Stream, calls: Calls, pulse: Timer) -> None:
        """Be about to watch over *stream*."""
        self._stream = stream
        self._calls = calls
        self._pulse = pulse

    def keep(self) -> None:
        """Ask after a while, and again until *stream* is closed."""
        self._pulse.after(_EVERY_SECONDS, self._ask)

    def _ask(self) -> None:
        if not self._stream.is_closed:
            root = self._calls.access.prefix.encode()
            request = messages.page(root, b"", limit=1, names_only=True)
            self._calls.send(Ask(RANGE, request, acknowledged)).add_done_callback(self._answered)

    def _answered(self, answer: Future[None]) -> None:
        error = answer.exception()
        if isinstance(error, UnavailableError):
            _log.info("listening anew, for the server fell silent: %s", error)
            self._stream.close()
        else:
            self.keep()


Sink = Callable[[Snapshot], None]


_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5
_UNTOLD = -1


class EtcdWatch(Watch):
    """One observation, and the state it delivered last."""

    def __init__(
        self, place: Place, sink: Sink, orders: Orders, forget: Callable[["EtcdWatch"], None]
    ) -> None:
        """Tell *sink* of *place*; call *forget* in the end."""
        self.place = place
        self.unlisten: Callable[[], None] = _nothing
        # The order of what was read or heard last, and that of the state told last, which differ
        # if there was nothing to hand over.
        self._order = self._told = _UNTOLD
        self._content = Content({}, {})
        self._sink = sink
        self._orders = orders
        self._forget = forget
        self._closed = False
        self._lock = threading.RLock()

    def read(self, page: Page) -> None:
        """Take over what was read, and tell it unless it is no news."""
        with self._lock:
            if page.order > self._order:
                self._order, self._content = page.order, self.place.content(page.found)
                self._tell(None)

    def hear(self, events: Sequence[Event]) -> None:
        """Apply changes, and tell what has become of them."""
        with self._lock:
            order = self._orders.saw(era_of(self._order), events[-1].kv.mod_revision)
            if order > self._order:
                self._order = order
                self._apply(events)

    @override
    def close(self) -> None:
        with self._lock:
            self._closed = True
        self._forget(self)

    def _apply(self, events: Sequence[Event]) -> None:
        place, before = self.place, self._content
        if not any(place.is_news(event, before) for event in events):
            return
        after = Content(before.entries.copy(), before.unreadable.copy())
        for event in events:
            place.apply(event, after)
        self._content = after
        names = frozenset(place.name(event.kv) for event in events)
        self._tell(Delta(self._told, names) if place.end else None)

    def _tell(self, delta: Delta | None) -> None:
        self._told = self._order
        if not self._closed:
            self._sink(Snapshot(self._order, *self._content, delta))


class Watches:
    """All watches of one backend, notified by one thread. Thread-safe."""

    def __init__(self, states: States, calls: Calls, pulse: Timer) -> None:
        """Read from *states*; try again with *pulse*."""
        self._states = states
        self._calls = calls
        self._pulse = pulse
        self._watches: set[EtcdWatch] = set()
        self._stopped = False
        self._stream: Stream | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        calls.endpoints.on_move = self._move

    def add(self, target: Target, sink: Sink) -> EtcdWatch:
        """Tell *sink* of *target* from now on.

        Raises:
            ClosedError: The backend is closed.
            LifecycleError: It belongs to the parent of this forked process.
        """
        self._calls.check()
        watch = EtcdWatch(self._states.place(target), sink, self._calls.orders, self._forget)
        with self._changed:
            if self._stopped:
                raise ClosedError("the backend is closed")
            self._watches.add(watch)
            stream = self._stream
            self._need_thread()
        if stream is not None:
            self._begin(watch, stream)
        return watch

    def stop(self) -> None:
        """Close all watches, and take no more."""
        with self._changed:
            self._stopped = True
            watches = list(self._watches)
            self._changed.notify_all()
        for watch in watches:
            watch.close()
        self._end_stream()

    def join(self) -> None:
        """Wait until the thread has ended, unless this is called on it."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _need_thread(self) -> None:
        """Start the thread unless it runs, later if the system has none to spare."""
        if self._thread is None and self._watches and not self._stopped:
            thread = threading.Thread(target=self._run, name="kip30-etcd-watch", daemon=True)
            if started(thread):
                self._thread = thread
            else:
                self._pulse.after(_LONGEST_PAUSE, self._try_again)

    def _try_again(self) -> None:
        with self._changed:
            self._need_thread()

    def _run(self) -> None:
        pause = _FIRST_PAUSE
        while (watch := self._any()) is not None:
            if self._reaches(watch):
                pause = _FIRST_PAUSE
                self._listen()
            self._wait(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)

    def _any(self) -> EtcdWatch | None:
        """Return a watch if there is any; else end the thread."""
        with self._changed:
            if self._watches and not self._stopped:
                return next(iter(self._watches))
            self._thread = None
            return None

    def _reaches(self, watch: EtcdWatch) -> bool:
        """Say whether the store answers, so that it makes sense to ask for everything."""
        looked = self._states.look(watch.place, _itself)
        error = looked.exception()
        if error is None:
            watch.read(looked.result())
        return not isinstance(error, UnavailableError | ClosedError)

    def _listen(self) -> None:
        """Listen for all watches until the stream ends."""
        try:
            stream = Stream(self._calls.endpoints.current, self._calls.tokens.metadata)
        except (ValueError, NoThreadError):
            return
        with self._changed:
            self._stream = stream
            watches = list(self._watches)
        self._move()  # the endpoint that moved before `_stream` was set closed no stream
        for watch in watches:
            self._begin(watch, stream)
        if not stream.channel.is_ours:
            StreamWatchdog(stream, self._calls, self._pulse).keep()
        if watches and not self._stopped:
            stream.run()
        with self._changed:
            self._stream = None
        stream.close()

    def _wait(self, seconds: float) -> None:
        with self._changed:
            if not self._stopped:
                self._changed.wait(seconds)

    def _begin(self, watch: EtcdWatch, stream: Stream) -> None:
        if stream is self._stream and watch in self._watches:
            looked = self._states.look(watch.place, _itself)
            looked.add_done_callback(partial(self._looked, watch, stream))

    def _looked(self, watch: EtcdWatch, stream: Stream, looked: Future[Page]) -> None:
        again = partial(self._begin, watch, stream)
        later = partial(self._pulse.after, _LONGEST_PAUSE, again)
        if looked.exception() is not None:
            _log.info("retrying watch of %s after: %s", watch.place.target, looked.exception())
            later()
            return
        watch.read(looked.result())
        place, since = watch.place, looked.result().revision + 1
        number = stream.listen(place.key, place.end, since, Ear(watch.hear, again))
        with self._changed:
            watch.unlisten = partial(stream.ignore, number)
            wanted = watch in self._watches
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
        """Listen to the server that is used now."""
        stream = self._stream
        if stream is not None and stream.channel is not self._calls.endpoints.current:
            stream.close()

    def _end_stream(self) -> None:
        stream = self._stream
        if stream is not None:
            stream.close()


def _itself(page: Page) -> Page:
    return page


def _nothing() -> None:
    """Stand in for a watch without a listener."""


class EtcdObserve(ObserveDriver):
    """Whole targets, read once or watched."""

    def __init__(self, states: States, watches: Watches) -> None:
        """Read from *states* and be notified by *watches*."""
        self._states = states
        self._watches = watches

    @override
    def snapshot(self, target: Target) -> Future[Snapshot]:
        return self._states.read(target)

    @override
    def watch(self, target: Target, sink: Callable[[Snapshot], None]) -> Watch:
        return self._watches.add(target, sink)
