"""Reading the store in bulk: everything as of one revision, which etcd keeps until compaction.

The changes between two revisions come from a watch that ends (`ChangeStream`).
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from typing_extensions import override

from kip30.driver import Context
from kip30.driver.kit.lifecycle import close_when_dropped
from kip30.driver.kit.timer import Timer
from kip30.driver.scanning import (
    Change,
    Completeness,
    Consistency,
    Layout,
    Page,
    PageSize,
    Position,
    ScanDriver,
    Span,
    View,
    check_rows,
)
from kip30.errors import (
    ClosedError,
    Kip30Error,
    PositionLostError,
    UnavailableError,
    UnsupportedError,
)
from kip30_backends.etcd.calls import Calls, TypedRequest
from kip30_backends.etcd.client import messages
from kip30_backends.etcd.client.channel import RANGE, NoThreadError
from kip30_backends.etcd.client.messages import Event, Header, KeyRange, RangeAnswer, WatchAnswer
from kip30_backends.etcd.errors import CompactedError, Failure, translate
from kip30_backends.etcd.observation_order import OrderMark
from kip30_backends.etcd.resources import Resources
from kip30_backends.etcd.row_decoding import ScanView, reading
from kip30_backends.etcd.session import is_fixed
from kip30_backends.etcd.settings import EtcdSettings
from kip30_backends.etcd.watch import WatchStream

_EVERY_SECONDS = 0.1
_NUMBER = 1


def tells_progress(version: str) -> bool:
    """Return whether a server of *version* correctly reports the progress of a watch.

    Earlier ones report revisions whose events they have not sent yet (etcd's issue 15220), or
    nothing at all for a range without changes (17557).
    """
    return is_fixed(version)


class Extent(NamedTuple):
    """The changes of *keys* after revision *after* and up to *until*, of one cluster."""

    cluster: int
    keys: KeyRange
    after: int
    until: int


class ChangeStream:
    """One stream, which is closed after the last change. One thread reads from it."""

    def __init__(self, calls: Calls, timer: Timer, extent: Extent) -> None:
        """Open it to the server in use.

        Raises:
            ClosedError: The connection is closed.
            UnavailableError: The system cannot start another thread.
        """
        self._calls = calls
        self._timer = timer
        self._extent = extent
        # The revision up to which all changes have arrived.
        self._reached = extent.after
        # Events of the newest revision, of which more may follow in the next answer.
        self._fragments: list[Event] = []
        # Since when a caller waits for a response; None while it does not. Read by the timer.
        self._waits_since: float | None = None
        try:
            self._stream = WatchStream(calls.endpoints.current, calls.tokens.metadata)
        except ValueError as error:
            raise ClosedError("closed while the operation was under way") from error
        except NoThreadError as error:
            raise UnavailableError(f"no thread to spare for a watch: {error}") from error
        self._answers = self._stream.answers()

    def batches(self) -> Iterator[list[Event]]:
        """Yield events of whole revisions.

        Raises:
            CompactedError: The store has compacted some of them.
            PositionLostError: Another cluster answers.
            AuthenticationError: The user may not read the range.
            UnavailableError: The stream ended, or was silent for the operation timeout.
            ClosedError: Closed meanwhile.
        """
        # From the revision before: a watch that begins just where the store was compacted may miss
        # a deletion at that revision (etcd's issue 18089).
        self._stream.watch(_NUMBER, *self._extent.keys, self._extent.after)
        self._stream.ask_progress()
        self._timer.after(_EVERY_SECONDS, self._tick)
        while self._reached < self._extent.until:
            events = self._take(self._next())
            if events:
                yield events

    def close(self) -> None:
        """Close it. Idempotent."""
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
        """Return the events of whole revisions; the last one may continue in a fragment."""
        events = [*self._fragments, *answer.events]
        if not answer.fragment:
            self._fragments = []
            return events
        newest = _revision(events[-1])
        self._fragments = [one for one in events if _revision(one) == newest]
        return events[: len(events) - len(self._fragments)]

    def _tick(self) -> None:
        """Request progress while a caller waits; give up a server that does not answer."""
        since = self._waits_since
        if self._stream.is_closed:
            return
        if since is not None and time.monotonic() - since > self._calls.seconds:
            self._stream.close(Failure("DEADLINE_EXCEEDED", "the watch was silent"))
            return
        if since is not None:
            self._stream.ask_progress()
        self._timer.after(_EVERY_SECONDS, self._tick)

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


_PIECE_ROWS = 1_000
_NAMES = 250_000
_SERVER_BYTES = 64 * 1024 * 1024


class _CountedRange(NamedTuple):
    """The keys from *start* on that are before *end*, of which there are *rows*.

    A server walks the whole rest of a range in spite of a limit, so a request is for a piece.
    """

    start: bytes
    end: bytes
    rows: int


class EtcdScanner(ScanDriver):
    """One cluster, by a connection without a lease."""

    consistency = Consistency.POINT_IN_TIME

    def __init__(self, context: Context, settings: EtcdSettings, view: View) -> None:
        """Connect.

        Raises:
            InvalidNameError: The *under* of *view* cannot be a name. Nothing is connected.
            ConfigError: A file of the settings cannot be read. Nothing is connected.
            AuthenticationError: The user may not read the keys, or the cluster wants another one.
            UnavailableError: No server answered in the connect timeout.
            UnsupportedError: The connection is borrowed, and this is a forked child.
        """
        self._view = view
        self._namespace = context.namespace
        self._reading: ScanView = reading(context.namespace, view)
        # Feeds of iterators under way. `close` ends them from another thread.
        self._streams: set[ChangeStream] = set()
        self._closed = False
        resources = self._resources = Resources(context, settings, reads=self._reading.prefix)
        self._drop = close_when_dropped(self, resources.drop)
        try:
            self._note_log()
        except BaseException:
            self.close()
            raise

    @override
    def position(self) -> Position:
        header = self._now()
        return Position(_identity(header), str(header.revision))

    @override
    def turn_to(self, view: View, at: Position) -> Position:
        self._reading = reading(self._namespace, view)
        self._view = view
        self._note_log()
        return at

    @override
    def plan(self, at: Position, rows: int) -> Iterator[Span]:
        step = check_rows(rows) // -(-rows // _PIECE_ROWS)
        pieces: list[_CountedRange] = []
        planned = 0
        for keys in self._reading.ranges:
            for piece in self._pieces(keys, at, step):
                pieces.append(piece)
                planned += piece.rows
                if planned > rows - step:
                    yield _span(pieces)
                    pieces, planned = [], 0
        if pieces:
            yield _span(pieces)

    @override
    def scan(self, span: Span, at: Position) -> Iterator[Page]:
        size = PageSize()
        for piece in _pieces_of(span):
            yield from self._pages(piece, at, size)

    @override
    def changes(self, after: Position, until: Position) -> Iterator[Sequence[Change]]:
        """Yield every change. Only servers from 3.4.31, 3.5.13 or 3.6 on report its end."""
        extent = self._extent(after, until)
        if extent.after == extent.until:
            return
        stream = ChangeStream(self._resources.calls, self._resources.timer, extent)
        self._streams.add(stream)
        try:
            for events in stream.batches():
                if changes := self._reading.changes(events):
                    yield changes
        except CompactedError as error:
            raise _lost(after, error) from error
        finally:
            self._streams.discard(stream)
            stream.close()

    @override
    def close(self) -> None:
        self._closed = True
        for stream in list(self._streams):
            stream.close()
        self._drop.detach()
        self._resources.close()

    def _pieces(self, keys: KeyRange, at: Position, step: int) -> Iterator[_CountedRange]:
        """Cut a range into pieces of *step* keys, by a walk over their names."""
        start, limit = keys.start, step
        while True:
            answer = self._read(at, start, keys.end, limit=limit, names_only=True)
            begun = 0
            for last in _cuts(len(answer.kvs), step):
                end = answer.kvs[last].key + b"\0"
                yield _CountedRange(start, end, last + 1 - begun)
                start, begun = end, last + 1
            if not answer.more:
                return
            limit = self._names_at_once(answer.count) // step * step

    def _names_at_once(self, count: int) -> int:
        """Return how many names to request of *count*.

        A server also reads the values before it omits them, and holds them all in memory.
        """
        mean = self._resources.calls.status().dbSize // count + 1
        return max(_PIECE_ROWS, min(_NAMES, _SERVER_BYTES // mean))

    def _pages(self, piece: _CountedRange, at: Position, size: PageSize) -> Iterator[Page]:
        start, left = piece.start, piece.rows
        while True:
            limit = size.rows if size.rows < left else 0
            answer = self._read(at, start, piece.end, limit=limit, names_only=False)
            page = self._reading.page(answer.kvs)
            size.adapt(page)
            yield page
            if not answer.more:
                return
            start = answer.kvs[-1].key + b"\0"
            left -= len(answer.kvs)

    def _read(
        self, at: Position, start: bytes, end: bytes, *, limit: int, names_only: bool
    ) -> RangeAnswer:
        request = messages.page(start, end, limit=limit, names_only=names_only, revision=int(at.at))
        try:
            answer = self._ask(request, _whole)
        except CompactedError as error:
            raise _lost(at, error) from error
        self._check_store(at, answer.header)
        return answer

    def _now(self) -> Header:
        return self._ask(messages.read(self._reading.ranges[0].start), _whole).header

    def _ask(
        self, request: Any, meaning: Callable[[RangeAnswer, OrderMark], RangeAnswer]
    ) -> RangeAnswer:
        self._check_open()
        return self._resources.calls.send(TypedRequest(RANGE, request, meaning)).result()

    def _extent(self, after: Position, until: Position) -> Extent:
        """Return the changes between two positions, once both are known to be of this store."""
        self._check_open()
        if not self._keeps_log():
            raise UnsupportedError(
                "claims have no log of changes, and only etcd 3.4.31, 3.5.13, 3.6 and newer"
                " can say where one ends"
            )
        now = self._now()
        for at in (after, until):
            self._check_store(at, now)
        extent = Extent(now.cluster_id, self._reading.hull, int(after.at), int(until.at))
        if not extent.after <= extent.until <= now.revision:
            raise PositionLostError(
                f"revision {until.at} is not between {after.at} and {now.revision}, the last one"
            )
        return extent

    def _note_log(self) -> None:
        self.completeness = Completeness.EVERY_CHANGE if self._keeps_log() else None

    def _keeps_log(self) -> bool:
        if self._view.layout is Layout.CLAIMS:
            return False
        return tells_progress(self._resources.calls.status().version)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this scanner is closed: open another one")

    def _check_store(self, at: Position, header: Header) -> None:
        if at.store != _identity(header):
            raise PositionLostError(
                f"the position is of cluster {at.store}, and this is {_identity(header)}"
            )


def _identity(header: Header) -> str:
    return f"{header.cluster_id:x}"


def _lost(at: Position, error: Exception) -> PositionLostError:
    return PositionLostError(f"revision {at.at} cannot be read: start again ({error})")


def _whole(answer: RangeAnswer, _sent: OrderMark) -> RangeAnswer:
    return answer


def _cuts(found: int, step: int) -> list[int]:
    """Return the numbers of the last keys of pieces, of which the last one may be smaller."""
    return [*range(step - 1, found - 1, step), found - 1] if found else []


def _span(pieces: Sequence[_CountedRange]) -> Span:
    cuts = [(start.hex(), end.hex(), rows) for start, end, rows in pieces]
    return Span(json.dumps(cuts).encode(), sum(piece.rows for piece in pieces))


def _pieces_of(span: Span) -> Iterator[_CountedRange]:
    for start, end, rows in json.loads(span.token):
        yield _CountedRange(bytes.fromhex(start), bytes.fromhex(end), rows)
