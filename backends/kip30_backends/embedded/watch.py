"""Observing targets: the watches that a change concerns, and the states delivered to them."""

import logging
import sqlite3
import threading
from collections.abc import Collection, Mapping
from typing import NamedTuple

from kip30.driver.kit.watch import NOTHING_DELIVERED, Sink, WatchHandle
from kip30.driver.records import Kind, Snapshot, Target
from kip30_backends.embedded.target_states import (
    UNREADABLE,
    TargetStates,
    begin,
    is_forgotten,
    targets_of,
)

_CHANGES = "SELECT root, kind, scope, name FROM change WHERE rev > ?"


class ChangeLog(NamedTuple):
    """Changes after revision *since* until *rev*: targets by root, None if not known."""

    since: int
    rev: int
    targets: Mapping[int, Collection[Target]] | None

    def may_concern(self, root: int, watched: Mapping[Target, object]) -> bool:
        """Return whether one of the targets *watched* below *root* may have changed."""
        if self.targets is None:
            return True
        return any(target in watched for target in self.targets.get(root, ()))


def changes_since(since: int, connection: sqlite3.Connection) -> ChangeLog:
    """Return the targets of all roots that have changed after revision *since*."""
    rev = begin(connection)
    if rev == since:
        return ChangeLog(since, rev, {})
    if is_forgotten(connection, since):
        return ChangeLog(since, rev, None)
    targets: dict[int, set[Target]] = {}
    try:
        for root, *change in connection.execute(_CHANGES, (since,)):
            targets.setdefault(root, set()).update(targets_of(*change))
    except UNREADABLE:  # another program wrote a change, of an unknown target
        return ChangeLog(since, rev, None)
    return ChangeLog(since, rev, targets)


class Watches:
    """All watches of one backend, notified by one thread. Adding and closing is thread-safe.

    Attributes:
        states: The reader of the targets.
    """

    def __init__(self, states: TargetStates) -> None:
        """Read from *states*."""
        self.states = states
        # All watches by what they observe, and those that lack the present state: nothing was
        # delivered to them yet, or their sinks raised. Both are changed under the lock.
        self._by_target: dict[Target, list[WatchHandle]] = {}
        self._undelivered: dict[WatchHandle, None] = {}  # keys alone, in the order of `add`
        # The state of each watched target as of `_seen`, but for those not read yet. Changed
        # under the lock: by `_deliver_to`, and by `_forget` when the last watch of one is closed.
        self._delivered: dict[Target, Snapshot] = {}
        # How many are of a group, a service or a member. Changed under the lock.
        self._on_claims = 0
        # The revision of which all states have been delivered. Written by the thread that delivers.
        self._seen = NOTHING_DELIVERED
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._by_target)

    @property
    def on_claims(self) -> bool:
        """True if any target changes when a session dies: a group, a service, a member."""
        return self._on_claims > 0

    def add(self, target: Target, sink: Sink) -> WatchHandle:
        """Call *sink* with the states of *target* from the next `deliver` on."""
        self.states.check()
        watch = WatchHandle(target, sink, self._forget)
        with self._lock:
            self._by_target.setdefault(target, []).append(watch)
            self._on_claims += _is_claim(target)
            self._undelivered[watch] = None
        return watch

    def skip(self, log: ChangeLog) -> bool:
        """Count the changes of *log* as delivered if no watch needs them; return whether it did.

        Only the thread that delivers may call.
        """
        with self._lock:
            if not self._by_target:
                return True
            is_known = log.since <= self._seen and not self._undelivered
            if not is_known or log.may_concern(self.states.root, self._by_target):
                return False
        self._seen = log.rev
        return True

    def deliver(self) -> None:
        """Read the changed targets and notify their watches.

        If that fails half-way, the next call starts again; no watch is notified twice. A sink that
        raised gets the same state from the next call.
        """
        if self._by_target:
            self._deliver_changes()

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            watches = [watch for group in self._by_target.values() for watch in group]
        for watch in watches:
            watch.close()

    def abandon(self) -> None:
        """In a forked child: deliver nothing."""
        self._lock = threading.Lock()
        self._by_target = {}
        self._delivered = {}

    def _deliver_changes(self) -> None:
        with self._lock:
            fresh = [watch.target for watch in self._undelivered]
        news = self.states.news(self._seen, self._delivered, fresh)
        for target, state in news.states.items():
            self._deliver_to(target, state)
        self._seen = news.rev
        with self._lock:
            self._undelivered = {
                watch: None for watch in self._undelivered if self._lacks_state(watch)
            }

    def _lacks_state(self, watch: WatchHandle) -> bool:
        state = self._delivered.get(watch.target)
        return state is None or watch.order < state.order

    def _deliver_to(self, target: Target, state: Snapshot) -> None:
        with self._lock:
            watches = list(self._by_target.get(target, ()))
            if not watches:
                return
            self._delivered[target] = state
        for watch in watches:
            try:
                watch.deliver(state)
            except Exception:  # noqa: BLE001  the other watches get their states
                _log.exception("a sink raised")
                with self._lock:
                    if not watch.is_closed:
                        self._undelivered[watch] = None

    def _forget(self, watch: WatchHandle) -> None:
        with self._lock:
            group = self._by_target.get(watch.target, [])
            if watch not in group:
                return
            group.remove(watch)
            self._undelivered.pop(watch, None)
            self._on_claims -= _is_claim(watch.target)
            if not group:
                del self._by_target[watch.target]
                self._delivered.pop(watch.target, None)


def _is_claim(target: Target) -> bool:
    # A member may be another client's: candidates and locks wait for the end of one.
    return target.kind in {Kind.GROUP, Kind.SERVICE, Kind.MEMBER}


_log = logging.getLogger(__name__)
