"""The election for a runner, on a store that may not be available yet."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from typing_extensions import override

from kip30.codecs import BYTES
from kip30.config import CommonSettings, Properties, Value, build
from kip30.driver import Capability
from kip30.driver.clock import SystemClock
from kip30.driver.closeable import Closeable
from kip30.election import LeaderElection
from kip30.errors import ClosedError, NotNominatedError, StoreError, UnsupportedError, UsageError
from kip30.listeners import ValueChange
from kip30.locator import PluginLocator
from kip30.runner.completed_runs import (
    CompletedRun,
    CompletedRuns,
    check_run_key,
    record_key,
    run_of,
)
from kip30.runner.protocols import Contest
from kip30.runner.retried_call import RetriedCall, StoreProbe, refuse_overlap
from kip30.runtime.candidacy import Leadership
from kip30.runtime.priority_rules import nominated_priority

_log = logging.getLogger(__name__)

_SETTING = "plugin.operations"
_UNTIL_RESIGNED = 10 * 365 * 86_400.0
"""Seconds within which every command ends: the grace is a year at most."""

_CLOCK = SystemClock()
"""The one by which `LeaderElection.wait_elected` measures its timeout."""


class StoreContest(Closeable, Contest):
    """One candidate for one service of the configured store; a `kip30.runner.Contest`.

    The store is opened, and the candidate nominated, on a thread of its own: both may take as
    long as the store's timeouts, and the runner handles signals meanwhile.
    """

    def __init__(
        self, properties: Properties, service: str, candidate: str, *, priority: int | None = None
    ) -> None:
        """Open nothing before `wait`. The candidate obeys directives, unless a setting forbids it.

        A term that an operator has ended stays valid until it is resigned: then all processes of
        the command have ended. The *priority* is as for `LeaderElection.nominate`.

        Raises:
            ConfigError: A setting is wrong; the message names it.
            UsageError: *priority* is none, or would have no effect.
        """
        self._properties = _obeying(properties)
        self._service = service
        self._candidate = candidate
        self._priority = priority_of(self._properties, service, priority)
        self._locator = PluginLocator()
        self._election: LeaderElection[str] | None = None
        self._entry = RetriedCall(self._enter)
        self._probe = StoreProbe(self._locator)
        self._term: Leadership | None = None

    @override
    def wait(self, timeout: float) -> Leadership | None:
        """Become a candidate and wait for a term; see `kip30.runner.Contest`.

        A candidate that the store has refused meanwhile is nominated again by the next call.
        """
        election = self._entry.result(timeout)
        if election is None:
            return None
        until = _CLOCK.now() + timeout
        self._term = election.wait_elected(self._candidate, timeout)
        if self._term is None:
            self._nominate_again(until)
            self._probe.check()
        return self._term

    @override
    def has_tried(self) -> bool:
        """Return whether a nomination has ended; see `kip30.runner.Contest`."""
        timeouts = build(CommonSettings, self._properties)
        return self._entry.has_tried(timeouts.operation_timeout_seconds)

    @property
    def locator(self) -> PluginLocator:
        """The locator of the store, which may not be open yet."""
        return self._locator

    def candidates(self) -> dict[str, Leadership | None]:
        """Return the candidate if it is nominated, with its term, or None. Any thread may call."""
        election = self._election
        with suppress(ClosedError):
            return {} if election is None else election.candidates()
        return {}

    @override
    def share_fd(self) -> int | None:
        """Return a descriptor that keeps the lease of the present term, if there is such a thing.

        There is none where a lease ends with its timeout only, or if the term has already ended,
        which the runner is about to see.
        """
        if self._election is None or self._term is None:
            return None
        try:
            return self._election.share_lease(self._term)
        except (UnsupportedError, UsageError):
            return None

    @override
    def resign(self) -> None:
        """Give up term and candidacy. Idempotent."""
        if self._election is None or not self._entry.is_done:
            return
        self._entry.forget()
        self._term = None
        with suppress(NotNominatedError):
            self._election.resign(self._candidate)

    @override
    def close(self) -> None:
        """Close the store; the candidate resigns with it."""
        self._locator.close()

    def _nominate_again(self, until: float) -> None:
        """Let the next `wait` nominate the candidate if the last one ended before *until*.

        Only a candidate that is not nominated any longer ends a wait without a term so early. The
        nomination raises why the store refuses it.
        """
        left = until - _CLOCK.now()
        if left > 0:
            self._entry.forget()
            time.sleep(left)  # or a caller that waits again would nominate again and again

    def _enter(self) -> LeaderElection[str]:
        election = self._open()
        election.nominate(
            self._candidate, "", step_down_seconds=_UNTIL_RESIGNED, priority=self._priority
        )
        return election

    def _open(self) -> LeaderElection[str]:
        if self._election is None:
            locator = self._locator.startup(self._properties)
            refuse_overlap(locator.backend)
            self._election = locator.leader_election(self._service)
        return self._election


def _obeying(properties: Properties) -> Properties:
    """Return *properties*, by which candidates obey directives if they do not say otherwise."""
    return Properties({_SETTING: Value("true", "default of the runner")}) | properties


def priority_of(properties: Properties, service: str, given: int | None) -> int:
    """Return the priority of a candidate of a runner, for which *given* was given, or None.

    Raises:
        ConfigError: A setting is wrong; the message names it.
        UsageError: *given* is no priority; or it is above 0 and has no effect.
    """
    settings = build(CommonSettings, _obeying(properties))
    return nominated_priority(
        service, given, default=settings.priority, is_honoured=settings.obeys_directives
    )


class OncePerKeyContest(StoreContest):
    """A contest that ends for all candidates once the command has succeeded for a key."""

    def __init__(
        self,
        properties: Properties,
        service: str,
        candidate: str,
        key: str,
        *,
        priority: int | None = None,
    ) -> None:
        """Open nothing before `wait`; see `StoreContest`. *key* is what the run is for.

        Raises:
            ConfigError: As for `StoreContest`.
            UsageError: The same; or *key* cannot be that of a run.
            InvalidNameError: The name of *service* is too long.
        """
        super().__init__(properties, service, candidate, priority=priority)
        self._key = check_run_key(key)
        self._record_key = record_key(service)
        self._runs: CompletedRuns | None = None
        # The run that makes another one superfluous. Written by the listener's thread, too.
        self._found: CompletedRun | None = None
        # Reads the record in the term with this epoch.
        self._reading = RetriedCall(self._read)
        self._read_epoch = 0

    @override
    def wait(self, timeout: float) -> Leadership | None:
        """Wait for a term in which the command must run; see `StoreContest.wait`.

        The record is read after the election: it has all runs of former terms that were noted.
        """
        if self._entry.result(timeout) is None or self._found is not None:
            return None
        term = super().wait(timeout)
        if term is None:
            return None
        if term.epoch != self._read_epoch:
            self._reading.forget()
            self._read_epoch = term.epoch
        has_read = self._reading.result(timeout)
        return term if has_read and self._found is None else None

    @override
    def finished(self) -> str:
        """Return which run has succeeded before."""
        return "" if self._found is None else self._found.described()

    @override
    def note_success(self, goes_on: Callable[[], bool]) -> None:
        """Add the run to the record, by the fence of its term; retry only while that is valid."""
        term = self._term
        if term is None or self._runs is None:
            raise StoreError("the term of the run is not known any longer")
        run = CompletedRun(self._key, self._candidate, term.epoch, time.time())
        self._runs.add(run, term, goes_on=lambda: term.is_valid() and goes_on())

    @override
    def _enter(self) -> LeaderElection[str]:
        if self._runs is None:
            self._open()
            storage = self._locator.storage(BYTES)
            self._require(Capability.FENCING, Capability.COMPARE_AND_SET)
            registry = self._locator.listener_registry(BYTES)
            registry.add_value_change_listener(self._record_key, self._heard)
            self._runs = CompletedRuns(storage, self._service)
        self._read()
        return self._open() if self._found else super()._enter()

    def _read(self) -> bool:
        if self._runs is not None:
            self._found = self._runs.find(self._key) or self._found
        return True

    def _require(self, *wanted: Capability) -> None:
        for capability in wanted:
            if capability not in self._locator.backend.capabilities:
                name = self._locator.backend.name
                raise UnsupportedError(f"store {name!r} has no {capability.value}")

    def _heard(self, change: ValueChange[bytes]) -> None:
        if change.value is None:
            return
        try:
            self._found = run_of(self._key, change.key, change.value) or self._found
        except StoreError as error:  # the read that follows an election raises it
            _log.warning("%s", error)
