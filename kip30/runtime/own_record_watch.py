"""The watch of a member on its own record, which another client may remove."""

import logging
import math
import threading

from kip30.driver.records import Claim, Kind, Target
from kip30.errors import ClosedError, Kip30Error, LifecycleError
from kip30.runtime.dispatcher import Task
from kip30.runtime.open_store import OpenStore
from kip30.runtime.subscriptions import Feed

log: logging.Logger = logging.getLogger(__name__)

_SETTLED = 1 / 3
"""Fraction of the session timeout after which a member watches; short-lived ones never do."""


class OwnRecordWatch:
    """Tells whether the store still has the record of one member.

    Without it, a member whose record an operator has removed would count itself as valid until its
    session ends, beside the next member with the same id. Thread-safe.
    """

    def __init__(self, store: OpenStore, group: str, member_id: str, task: Task) -> None:
        """Watch nothing yet; wake *task* at every change."""
        self._store = store
        self._target = Target(Kind.MEMBER, group, member_id)
        self._task = task
        # All below is written under the lock: a task may look while another one closes.
        self._lock = threading.Lock()
        # When the watch begins, on the lease clock.
        self._due = math.inf
        # The feed of the record; None while it is not watched.
        self._feed: Feed | None = None
        self._is_closed = False

    def member_began(self) -> None:
        """Begin to watch after a while, unless it is already watched."""
        if not self._store.backend.membership.removal_ends_lease:
            with self._lock:
                self._begin_later()

    def shows_loss_of(self, claim: Claim) -> bool:
        """Return whether the store has another record than that of *claim*, or none."""
        with self._lock:
            self._begin_if_due()
            latest = self._feed.latest if self._feed is not None else None
        if latest is None or latest.order <= claim.order:
            return False
        entry = latest.entries.get(claim.name)
        return entry is None or entry.version != claim.entry.version

    def close(self) -> None:
        """Stop watching."""
        with self._lock:
            self._is_closed = True
            feed, self._feed = self._feed, None
        if feed is not None:
            self._store.subscriptions.detach(self._target, self._task)

    def _begin_later(self) -> None:
        if self._feed is None and not self._is_closed:
            context = self._store.context
            self._due = context.clock.now() + _SETTLED * context.session_timeout_seconds
            self._task.wake_at(self._due)

    def _begin_if_due(self) -> None:
        is_due = self._store.context.clock.now() >= self._due
        if self._feed is not None or self._is_closed or not is_due:
            return
        try:
            self._feed = self._store.subscriptions.attach(self._target, self._task)
        except (ClosedError, LifecycleError):
            self._is_closed = True
        except Kip30Error as error:
            log.info("member %r is not watched yet: %s", self._target.name, str(error))
            self._begin_later()
