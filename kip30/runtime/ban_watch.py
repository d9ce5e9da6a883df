"""The bans of one group, as the members of one handle obey them."""

import logging
import threading
import time
from functools import partial

from kip30.errors import AuthenticationError, BannedError, StoreError
from kip30.runtime.bans import Ban, Bans, bans_key, decode_bans
from kip30.runtime.open_store import OpenStore
from kip30.runtime.subscriptions import Feed, FeedReader
from kip30.runtime.watched_record import WatchedRecord, record_target

log: logging.Logger = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0
"""Seconds after which the time of day is looked at again: the clock may be corrected."""
_SHORTEST_WAIT = 0.05


class BanWatch:
    """Tells the members of one group whether they are banned. Thread-safe.

    The members of all handles of a client share one watch. A client that obeys no directives
    watches and reads nothing, and bans nobody. Nor does one obey bans in kip30's own groups, such
    as lines and coordinators, or in a group whose name is too long for a key.
    """

    def __init__(self, store: OpenStore, group: str) -> None:
        """Watch nothing yet."""
        self._store = store
        self._group = group
        self._target = record_target(group, bans_key) if store.obeys_directives else None
        self._lock = threading.Lock()
        # The feed of the newest `begin`, which all readers share while there are any.
        self._feed: Feed | None = None
        # Guarded by the lock.
        self._known: WatchedRecord[Bans] | None = None
        if self._target is not None:
            self._known = WatchedRecord(self._target, Bans(), partial(decode_bans, group))
        # Whether the last read was refused.
        self._is_refused = False

    def begin(self, reader: FeedReader) -> None:
        """Wake *reader* at every change, until `end`."""
        if self._target is not None:
            self._feed = self._store.subscriptions.attach(self._target, reader)

    def end(self, reader: FeedReader) -> None:
        """Undo `begin`; do nothing if it was not called."""
        if self._target is not None:
            self._store.subscriptions.detach(self._target, reader)

    def ban_of(self, member_id: str) -> Ban | None:
        """Return the ban of *member_id*, as far as is known; None if there is none."""
        if self._known is None:
            return None
        latest = None if self._feed is None else self._feed.latest
        with self._lock:
            if latest is not None:
                self._known.take(latest)
            ban = self._known.record.of(member_id)
        return None if ban is None or ban.is_over(time.time()) else ban

    def next_look(self, ban: Ban) -> float:
        """Return when *ban* may be over, on the clock of leases; it may be earlier."""
        left = min(max(ban.until - time.time(), _SHORTEST_WAIT), _LOOK_SECONDS)
        return self._store.context.clock.now() + left

    def check_before_claim(self, member_id: str) -> None:
        """Return if a claim of *member_id* may be granted and obeyed, as far as is known.

        Raises:
            BannedError: The store has a ban of it now.
            Kip30Error: The record may not be read; or it was refused before, or has shown a ban,
                and the store does not answer now.
        """
        if self._is_refused or self.ban_of(member_id) is not None:
            self.check_now(member_id)

    def check_now(self, member_id: str) -> None:
        """Return if the store has no ban of *member_id* now.

        Raises:
            BannedError: It has.
            AuthenticationError, StoreError: The record may not be read.
            Kip30Error: The store did not answer.
        """
        if self._known is None or self._target is None:
            return
        self._is_refused = False
        try:
            state = self._store.wait(self._store.drivers.observe.snapshot(self._target))
        except (AuthenticationError, StoreError):
            self._is_refused = True
            raise
        with self._lock:
            self._known.take(state)
        self.report()
        ban = self.ban_of(member_id)
        if ban is not None:
            raise BannedError(f"{member_id!r} is {ban}: it cannot join {self._group!r}")

    def report(self) -> None:
        """Log a record that cannot be read, once. A handler of the log may block."""
        if self._known is None:
            return
        with self._lock:
            report = self._known.reporter(self._store.unreadable, log)
        report()
