"""Folding deletions: many deleted rows, which each read would have to pass, become one range.

Cassandra keeps a tombstone for each deleted row, for ten days by default, and fails a read that
meets too many of them. A range that is deleted replaces all tombstones in it that are older. So
between two rows that are there, all of what was before a moment can be deleted as a range.

That moment is the timestamp of a conditional write of the same partition. All that is decided later
has a greater one, since timestamps of decisions grow in a partition. All that was decided before is
seen by the serial reads that follow. So nothing can be lost that is there or will be there, and
these deletions need no condition.

Ranges are kept as long as other deletions are: a node may be away for as long as before.
"""

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from kip30.driver.kit.following import then, whatever
from kip30.driver.kit.futures import fail, succeed
from kip30.driver.kit.threads import started
from kip30_backends.cassandra.calls import Calls
from kip30_backends.cassandra.errors import DeletionsError
from kip30_backends.cassandra.folding import Folding, Place, statements
from kip30_backends.cassandra.library import Wire
from kip30_backends.cassandra.statements import Statements

T = TypeVar("T")

EVERY = 500
"""After how many deletions a place is folded, on the average. Each client throws dice of its own,
so it does not matter among how many clients they are divided."""

_log = logging.getLogger(__name__)


class Folds:
    """Folds partitions, one after the other, on a thread that lasts while there are any."""

    def __init__(self, calls: Calls, wire: Wire, keyspace: str) -> None:
        """Fold in *keyspace*; what that needs is prepared when it is needed."""
        self._calls = calls
        self._wire = wire
        self._keyspace = keyspace
        self._prepared: dict[str, Statements] = {}
        self._sizes: dict[Place, int] = {}
        self._waiting: dict[Place, Future[None]] = {}
        self._lock = threading.Lock()

    def noted(self, table: str, scope: str, deletions: int) -> None:
        """Take note of so many *deletions* in a partition, and fold it by chance."""
        place = Place(table, scope)
        every = max(EVERY, self._sizes.get(place, 0) // 2)
        if deletions and random.random() * every < deletions:  # noqa: S311  dice
            self._begun(place)

    def mended(self, place: Place, read: Callable[[], Future[T]], until: float) -> Future[T]:
        """Return what *read* returns, after folding *place* if it fails because of deletions."""

        def ended(done: Future[T]) -> Future[T]:
            error = done.exception()
            if not isinstance(error, DeletionsError):
                return done
            return then(self._folded(place, error, until), lambda _: read())

        return whatever(read(), ended)

    def _folded(self, place: Place, error: DeletionsError, until: float) -> Future[None]:
        """Return what is done once *place* was folded, or fails with *error* when time is up."""
        waiting: Future[None] = Future()
        late = self._calls.pulse.after(until - time.monotonic(), partial(fail, waiting, error))
        if late is not None:
            waiting.add_done_callback(lambda _: late.cancel())
        self._begun(place).add_done_callback(lambda _: succeed(waiting, None))
        return waiting

    def _begun(self, place: Place) -> Future[None]:
        """Return what is done once *place* was folded, or could not be."""
        with self._lock:
            done = self._waiting.get(place)
            if done is not None:
                return done
            done = self._waiting[place] = Future()
            is_first = len(self._waiting) == 1
        if is_first:
            thread = threading.Thread(target=self._work, name="kip30-cassandra-fold", daemon=True)
            if not started(thread):
                self._leave()
        return done

    def _work(self) -> None:
        while (place := next(iter(self._waiting), None)) is not None:
            self._fold(place)
            with self._lock:
                done = self._waiting.pop(place)
                is_last = not self._waiting
            succeed(done, None)
            if is_last:  # the next request starts a thread
                return

    def _leave(self) -> None:
        """Complete all that wait, as without a request: there is no thread to do it."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for done in waiting.values():
            succeed(done, None)

    def _fold(self, place: Place) -> None:
        try:
            rows = Folding(self._calls, self._about(place.table), place).fold()
        except Exception as error:  # noqa: BLE001  the driver raises what it likes
            _log.info("deletions in %s %r were not folded: %s", *place, error)
        else:
            self._sizes[place] = rows

    def _about(self, table: str) -> Statements:
        if table not in self._prepared:
            self._prepared[table] = Statements(self._wire, statements(table, self._keyspace))
        return self._prepared[table]
