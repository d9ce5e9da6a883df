"""One stream of a server, over which all watches of a backend hear of changes."""

import itertools
import queue
from collections.abc import Callable, Iterator
from typing import Any

from kip30_backends.etcd.channel import Channel, Metadata, failure_of
from kip30_backends.etcd.errors import Failure
from kip30_backends.etcd.grpc_library import GRPC
from kip30_backends.etcd.messages import MESSAGES, Event, WatchAnswer

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
