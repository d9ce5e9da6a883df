"""The changes of a range of keys between two revisions, by a watch that ends."""

import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from kip30.driver.kit.timer import Timer
from kip30.errors import ClosedError, Kip30Error, PositionLostError, UnavailableError
from kip30_backends.etcd.calls import Calls
from kip30_backends.etcd.channel import NoThreadError
from kip30_backends.etcd.errors import CompactedError, Failure, translate
from kip30_backends.etcd.messages import Event, WatchAnswer
from kip30_backends.etcd.requests import KeyRange
from kip30_backends.etcd.stream import Stream

_EVERY_SECONDS = 0.1
_NUMBER = 1
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_FIXED = {(3, 4): 31, (3, 5): 13}


def tells_progress(version: str) -> bool:
    """Say whether a server of *version* tells rightly how far a watch is.

    Earlier ones tell of revisions whose events they have not sent yet (etcd's issue 15220), or
    nothing at all of a range without changes (17557).
    """
    found = _VERSION.match(version)
    if found is None:
        return False
    major, minor, patch = map(int, found.groups())
    return (major, minor) > max(_FIXED) or patch >= _FIXED.get((major, minor), patch + 1)


class Extent(NamedTuple):
    """The changes of *keys* after revision *after* and up to *until*, of one cluster."""

    cluster: int
    keys: KeyRange
    after: int
    until: int


class Feed:
    """One stream, which is closed when the last change has come. One thread takes from it."""

    def __init__(self, calls: Calls, pulse: Timer, extent: Extent) -> None:
        """Open it to the server in use.

        Raises:
            ClosedError: The connection is closed.
            UnavailableError: The system has no thread to spare.
        """
        self._calls = calls
        self._pulse = pulse
        self._extent = extent
        self._reached = extent.after
        self._fragments: list[Event] = []
        self._waits_since: float | None = None
        try:
            self._stream = Stream(calls.endpoints.current, calls.tokens.metadata)
        except ValueError as error:
            raise ClosedError("closed while the operation was under way") from error
        except NoThreadError as error:
            raise UnavailableError(f"no thread to spare for a watch: {error}") from error
        self._answers = self._stream.answers()

    def batches(self) -> Iterator[list[Event]]:
        """Yield events of whole revisions.

        Raises:
            CompactedError: The store has forgotten some.
            PositionLostError: Another cluster answers.
            AuthenticationError: The user may not read the range.
            UnavailableError: The stream ended, or was silent for the operation timeout.
            ClosedError: Closed meanwhile.
        """
        # From the revision before: a watch that begins just where the store was compacted may miss
        # a deletion at that revision (etcd's issue 18089).
        self._stream.watch(_NUMBER, *self._extent.keys, self._extent.after)
        self._stream.ask_progress()
        self._pulse.after(_EVERY_SECONDS, self._tick)
        while self._reached < self._extent.until:
            events = self._take(self._next())
            if events:
                yield events

    def close(self) -> None:
        """End it. Idempotent."""
        self._stream.close()

    def _next(self) -> WatchAnswer:
        self._waits_since = time.monotonic()
        answer = next(self._answers, None)
        self._waits_since = None
        if answer is None:
            raise self._translated(self._stream.failure)
        if answer.canceled:
            raise self._refusal(answer)
        if answer.header.cluster_id != self._extent.cluster:
            raise PositionLostError("another cluster of etcd answers than had the position")
        return answer

    def _take(self, answer: WatchAnswer) -> list[Event]:
        if answer.watch_id != _NUMBER:  # of progress: it is of all watches
            self._reached = max(self._reached, answer.header.revision)
            return []
        extent, events = self._extent, self._whole(answer)
        if events:
            self._reached = max(self._reached, _revision(events[-1]))
        return [one for one in events if extent.after < _revision(one) <= extent.until]

    def _whole(self, answer: WatchAnswer) -> list[Event]:
        """Return the events of whole revisions; those of the last one may go on in a fragment."""
        events = [*self._fragments, *answer.events]
        if not answer.fragment:
            self._fragments = []
            return events
        newest = _revision(events[-1])
        self._fragments = [one for one in events if _revision(one) == newest]
        return events[: len(events) - len(self._fragments)]

    def _tick(self) -> None:
        """Ask how far the watch is, while a caller waits; give up a server that is silent."""
        since = self._waits_since
        if self._stream.is_closed:
            return
        if since is not None and time.monotonic() - since > self._calls.seconds:
            self._stream.close(Failure("DEADLINE_EXCEEDED", "the watch was silent"))
            return
        if since is not None:
            self._stream.ask_progress()
        self._pulse.after(_EVERY_SECONDS, self._tick)

    def _refusal(self, answer: WatchAnswer) -> Kip30Error:
        reason = answer.cancel_reason
        if answer.compact_revision:
            return CompactedError(f"history before {answer.compact_revision} was compacted")
        denied = "permission denied" in reason
        return self._translated(Failure("PERMISSION_DENIED" if denied else "UNKNOWN", reason))

    def _translated(self, failure: Failure) -> Kip30Error:
        access = self._calls.access
        return translate(
            failure,
            wrote=False,
            access=access,
            server=self._stream.channel.server,
        )


def _revision(event: Event) -> int:
    return event.kv.mod_revision
