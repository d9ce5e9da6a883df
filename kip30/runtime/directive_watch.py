"""The directives for the service of one campaign: watched, and read after a claim was granted."""

import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial

from kip30.driver.records import Claim, Snapshot
from kip30.errors import AuthenticationError, StoreError
from kip30.runtime.directive_rules import DirectiveRules
from kip30.runtime.directives import (
    Directives,
    StepDown,
    TermId,
    decode_directives,
    directives_key,
)
from kip30.runtime.open_store import OpenStore
from kip30.runtime.target_watch import TargetWatch
from kip30.runtime.watched_record import WatchedRecord, record_target

log: logging.Logger = logging.getLogger(__name__)


class DirectiveWatch:
    """Answers a campaign's questions about directives. Thread-safe.

    A client that obeys none watches and reads nothing, and all answers are as without directives.
    Nor does one obey any for kip30's own services, such as locks, or for a service whose name is
    too long for a key.
    """

    def __init__(self, store: OpenStore, service: str, wake: Callable[[], None]) -> None:
        """Watch nothing yet; call *wake* at every change: it must not block."""
        self._store = store
        self._target = record_target(service, directives_key) if store.obeys_directives else None
        self._service = service
        self._watch = None if self._target is None else TargetWatch(store, self._target, wake)
        self._lock = threading.Lock()
        # Guarded by the lock, as all below: whether candidates need the answers.
        self._is_watching = False
        self._rules = DirectiveRules()
        self._known: WatchedRecord[Directives] | None = None
        if self._target is not None:
            decode = partial(decode_directives, service)
            self._known = WatchedRecord(self._target, Directives(), decode)
        # Whether the last read was refused. Used by the campaign's task alone.
        self._is_refused = False

    def begin(self) -> None:
        """Watch the record, if it is not watched. Under the lock of the campaign."""
        if self._watch is None:
            return
        self._watch.begin()
        with self._lock:
            self._is_watching = True

    def end(self) -> None:
        """Stop watching. Under the lock of the campaign."""
        if self._watch is None:
            return
        self._watch.end()
        with self._lock:
            self._is_watching = False
            if self._store.metrics is not None:
                self._store.metrics.services.undirected(self._service)

    def update(self, latest: Snapshot | None) -> None:
        """Take the newest record of the watch, and the leader that *latest* shows."""
        if self._watch is not None:
            self._take(self._watch.latest(), latest)

    def read(self, latest: Snapshot | None) -> None:
        """Read the record from the store now, and take it as `update` does.

        Raises:
            AuthenticationError, StoreError: The store does not allow it. `require` says so before
                another claim is sent.
            Kip30Error: The store did not answer.
        """
        if self._target is None:
            return
        try:
            state = self._store.wait(self._store.drivers.observe.snapshot(self._target))
        except (AuthenticationError, StoreError) as error:
            if not self._is_refused:
                log.warning("%r cannot be led: its directives: %s", self._service, error)
            self._is_refused = True
            raise
        self._is_refused = False
        self._take(state, latest)

    def require(self, latest: Snapshot | None) -> None:
        """Return if the record may be read, as far as is known.

        Raises:
            Kip30Error: As `read`: it was refused the last time, and is again.
        """
        if self._is_refused:
            self.read(latest)

    def veto(self, candidate: str, claim: Claim | None = None) -> str:
        """Return why *candidate* may not claim, or not lead with *claim*; else empty."""
        if self._target is None:
            return ""
        with self._lock:
            return self._rules.veto(candidate, self._now(), time.time(), _term_of(claim))

    def names(self, candidate: str) -> bool:
        """Return whether a hand-over names *candidate* as the successor."""
        if self._target is None:
            return False
        with self._lock:
            return self._rules.names(candidate, self._now(), time.time())

    def may_replace(self, candidate: str, claim: Claim | None) -> bool:
        """Return whether *candidate*, of any client, may lead if *claim* is given back, if any."""
        if self._target is None:
            return True
        with self._lock:
            return self._rules.may_replace(candidate, self._now(), time.time(), _term_of(claim))

    def holds(self) -> bool:
        """Return whether a step-down holds the service."""
        if self._target is None:
            return False
        with self._lock:
            return self._rules.holds(self._now(), time.time())

    def step_down_of(self, claim: Claim) -> StepDown | None:
        """Return the step-down that ends the term of *claim*, if there is one."""
        if self._target is None:
            return None
        with self._lock:
            return self._rules.step_down_of(claim, self._now(), time.time())

    def forget_vetoes(self) -> None:
        """Let nothing be due for candidates that are not judged again: some may have resigned."""
        with self._lock:
            self._rules.forget_vetoes()

    def due(self) -> float:
        """Return when a candidate may lead although nothing changes; infinite if never."""
        if self._target is None:
            return math.inf
        with self._lock:
            return self._rules.due(self._now(), time.time())

    def report(self) -> None:
        """Log a record that cannot be read, once. A handler of the log may block."""
        if self._known is None:
            return
        with self._lock:
            report = self._known.reporter(self._store.unreadable, log)
        report()

    def _now(self) -> float:
        return self._store.context.clock.now()

    def _take(self, state: Snapshot | None, latest: Snapshot | None) -> None:
        """Take *state*, unless a newer one is known, and the leader that *latest* shows."""
        if self._known is None:
            return
        with self._lock:
            if state is not None:
                self._known.take(state)
            directives = self._known.record
            self._rules.note(directives, latest, self._now())
            if self._is_watching and self._store.metrics is not None:
                self._store.metrics.services.directed(self._service, directives.pause)


def _term_of(claim: Claim | None) -> TermId | None:
    return None if claim is None else TermId(claim.entry.version.major, claim.entry.nonce)
