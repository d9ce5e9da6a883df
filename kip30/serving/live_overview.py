"""The overview of a store for viewers, read again and again for as long as there are any.

Each look is a scan: it opens no session and leaves no watch behind. Without viewers there is none.
"""

import json
import logging
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

from typing_extensions import override

from kip30.config import Properties
from kip30.driver.closeable import Closeable
from kip30.driver.kit.thread_start import started
from kip30.errors import Kip30Error, UnavailableError
from kip30.operations import Overview, OverviewReader, ServiceStatus
from kip30.operations.directory import groups_with_bans
from kip30.runtime.directives import Directives

log: logging.Logger = logging.getLogger(__name__)

COMMENT_SECONDS = 5.0
"""Silence after which a stream of events gets a comment, which finds a viewer that is gone."""

MOST_LINES = 100
"""The most lines of what wants attention; all viewers get them whenever one changes."""

_READ_SHARE = 0.1
"""The part of the time that looks may take, so that a large store is read less often."""
_JOIN_SECONDS = 1.0
_OUTAGE_SECONDS = 5.0
"""How long a reader waits for a look after one that failed. Prometheus waits for 10 s by default,
as long as a store that is away may take to refuse a client."""
_STEP_DOWN = ("by", "at", "reason", "successor")
_BY_NAME = ("services", "groups")
"""The fields that are objects, of which events have only the entries that have changed."""

OverviewRecord = Mapping[str, Any]
"""An overview as JSON has it; `docs/serve.md` lists its fields. Never changed once it is made."""


class LiveOverview(Closeable):
    """Reads overviews on a thread of its own while there are viewers. Thread-safe."""

    def __init__(self, config: Properties, period_seconds: float | None = None) -> None:
        """Look at the store that *config* chooses, every *period_seconds*; None: as fits the store.

        Raises:
            ConfigError: A setting is wrong; the message names it.
            UnsupportedError: The store does not declare ``scanning``.
            UnavailableError: The system has no thread to spare.
        """
        self._reader = OverviewReader(config, with_terms=True)
        self._period_seconds = period_seconds or self._reader.live_period_seconds
        # All that follows is written under the condition, which is notified of each change.
        self._changed = threading.Condition()
        self._record: OverviewRecord | None = None  # None: none that may be shown
        self._known: OverviewRecord = _head(self._reader)  # the newest one, however old
        self._viewers = 0
        self._is_closed = False
        self._due_at = 0.0
        self._thread = threading.Thread(target=self._look_on, name="kip30-overview", daemon=True)
        if not started(self._thread):
            raise UnavailableError("the system has no thread to spare for overviews")

    @property
    def viewers(self) -> int:
        """The number of viewers now."""
        return self._viewers

    def read(self) -> OverviewRecord:
        """Return an overview that is no older than two periods, after a look if need be.

        After a look that failed, the next one may fail as slowly. So it is awaited for some
        seconds, and else the failure is returned, however old.

        Raises:
            UnavailableError: This is closed.
        """
        with self._viewing():
            known = self._known
            has_failed = known["error"] is not None
            record = self._other_than(None, _OUTAGE_SECONDS if has_failed else None)
        if record is None and not self._is_closed:
            return known
        if record is None:
            raise UnavailableError("the server is being closed")
        return record

    def events(self) -> Generator[bytes]:
        """Yield server-sent events: an overview, then what changes, until this is closed.

        Nothing is read before the first one is asked for. A viewer that takes its time misses
        none: the next event has all changes since the last one.
        """
        with self._viewing():
            sent: OverviewRecord | None = None
            while not self._is_closed:
                record = self._other_than(sent, COMMENT_SECONDS)
                if record is None:
                    yield b":\n\n"
                elif sent is None:
                    yield _event("overview", record)
                else:
                    yield _event("changes", changes(sent, record))
                sent = record or sent

    @override
    def close(self) -> None:
        """End all events, and look no more. A look that is under way ends by itself."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(_JOIN_SECONDS)

    @contextmanager
    def _viewing(self) -> Generator[None]:
        with self._changed:
            if not self._viewers and self._is_overdue():
                self._record = None  # it is too old to be shown
            self._viewers += 1
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._viewers -= 1

    def _other_than(
        self, sent: OverviewRecord | None, seconds: float | None
    ) -> OverviewRecord | None:
        """Wait for a record that is not *sent*; None: there is none within *seconds*, or closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._record is not sent, seconds)
            return None if self._record is sent else self._record

    def _look_on(self) -> None:
        while self._is_due():
            if self._is_overdue():  # elections may have come and gone meanwhile
                self._reader.forget_times()
            began = time.monotonic()
            known = self._look(self._known)
            ended = time.monotonic()
            failed = known["error"] is not None
            with self._changed:
                self._record = self._known = known
                self._due_at = next_look(began, ended, self._period_seconds, failed=failed)
                self._changed.notify_all()

    def _is_due(self) -> bool:
        """Wait until there are viewers and the period is over; false if this is closed."""
        with self._changed:
            while not self._is_closed:
                left = self._due_at - time.monotonic()
                if self._viewers and left <= 0:
                    return True
                self._changed.wait(left if self._viewers else None)
        return False

    def _is_overdue(self) -> bool:
        return time.monotonic() > self._due_at + self._period_seconds

    def _look(self, known: OverviewRecord) -> OverviewRecord:
        """Return a new record; if the store cannot be read, *known* with the error."""
        try:
            return {**_head(self._reader), **_shown(self._reader.read())}
        except Kip30Error as error:
            text = str(error)
        except Exception as error:  # or viewers would wait for ever
            log.exception("the overview was not read")
            text = f"unexpected {type(error).__name__}"
        return known if known["error"] == text else {**known, "error": text}


def next_look(began: float, ended: float, period_seconds: float, *, failed: bool) -> float:
    """Return when to look again after a look from *began* to *ended*, in seconds of the same clock.

    A look that failed took time to wait for the store, and not to read it.
    """
    due_at = ended if failed else began + (ended - began) / _READ_SHARE
    return max(due_at, began + period_seconds)


def changes(before: OverviewRecord, after: OverviewRecord) -> dict[str, Any]:
    """Return the fields of *after* that are not those of *before*.

    Of fields by name only the entries that differ are there; one that is gone is null.
    """
    found = dict[str, Any]()
    for name, value in after.items():
        known = before[name]
        if name in _BY_NAME:
            differing = {key: one for key, one in value.items() if known.get(key) != one}
            differing |= dict.fromkeys(known.keys() - value.keys())
            if differing:
                found[name] = differing
        elif value != known:
            found[name] = value
    return found


def _event(name: str, record: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(record)}\n\n".encode()


def _head(reader: OverviewReader) -> dict[str, Any]:
    """Return the record of a store that was not read yet."""
    return {
        "store": reader.store,
        "place": reader.place or None,
        "at": None,
        "read_ms": None,
        "services": {},
        "groups": {},
        "attention": [],
        "unreadable": 0,
        "error": None,
    }


def _shown(overview: Overview) -> dict[str, Any]:
    known = {one.service for one in overview.services}
    vacant = [ServiceStatus(one, None, None, 0) for one in overview.directives if one not in known]
    services = sorted([*overview.services, *vacant], key=attrgetter("service"))
    return {
        "at": round(time.time(), 3),
        "read_ms": round(overview.read_seconds * 1000, 1),
        "services": {one.service: _service(one, overview) for one in services},
        "groups": _groups(overview),
        "attention": _shortened(list(overview.problems())),
        "unreadable": len(overview.unreadable),
    }


def _groups(overview: Overview) -> dict[str, Any]:
    """Return the groups that have members or bans, by name, in the order of their names."""
    return {
        one.group: {"members": one.members, "bans": overview.ban_records(one.group)}
        for one in groups_with_bans(overview.groups, overview.bans)
    }


def _shortened(lines: list[str]) -> list[str]:
    left_out = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], f"{left_out} further lines"] if left_out > 0 else lines


def _service(one: ServiceStatus, overview: Overview) -> dict[str, Any]:
    found = overview.directives.get(one.service, Directives())
    pause, step_down = found.pause, found.step_down
    return {
        "leader": one.leader,
        "readable": one.readable,
        "epoch": one.epoch,
        "since": overview.since.get(one.service),
        "waiting": one.waiting,
        "pause": None if pause is None else pause._asdict(),
        "step_down": None
        if step_down is None
        else {name: getattr(step_down, name) for name in _STEP_DOWN},
    }
