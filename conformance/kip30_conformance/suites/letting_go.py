"""Guarantees of every store for a term that ends while work continues under it: L50."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from kip30 import (
    LeaderElection,
    Leadership,
    NotAcquiredError,
    OutcomeUnknownError,
    PluginLocator,
)
from kip30.driver.clock import SystemClock
from kip30.driver.closeable import Closeable
from kip30.recipes import Grip, Lock, ReadWriteLock, Semaphore
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.elector_log import BECOMING, RESIGNING, ElectorLog
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suite import OpenClient, Suite, supported
from kip30_conformance.suites.election import A_MOMENT, term_of

_SECONDS = 60
_SESSION = "plugin.session.timeout.ms"
_LARGE_MARGIN = 0.4

End = Callable[[PluginLocator, LeaderElection[str]], object]
_ENDS: dict[str, End] = {
    "resign": lambda _, election: election.resign("a"),
    "handle closed": lambda _, election: election.close(),
    "locator closed": lambda client, _: client.close(),
}
_EACH_END = pytest.mark.parametrize("end", _ENDS.values(), ids=_ENDS)


Recipe = Callable[[PluginLocator], tuple[Closeable, Callable[[float], Grip]]]


def _lock(client: PluginLocator, *, fair: bool = False) -> tuple[Lock, Callable[[float], Grip]]:
    lock = Lock(client, "l", fair=fair)
    return lock, lock.acquire


def _writer(client: PluginLocator) -> tuple[ReadWriteLock, Callable[[float], Grip]]:
    lock = ReadWriteLock(client, "l")
    return lock, lock.write


def _permit(client: PluginLocator) -> tuple[Semaphore, Callable[[float], Grip]]:
    semaphore = Semaphore(client, "l", 1)
    return semaphore, partial(semaphore.acquire, 1)


_RECIPES: dict[str, Recipe] = {
    "lock": _lock,
    "fair lock": partial(_lock, fair=True),
    "writer": _writer,
    "permit": _permit,
}


class _Step:
    """A step of work that ends when the check lets it."""

    def __init__(self) -> None:
        self._has_begun = threading.Event()
        self._may_end = threading.Event()

    def __call__(self, _term: Leadership | None = None) -> None:
        self._has_begun.set()
        self._may_end.wait(_SECONDS * time_scale())

    def wait_begun(self) -> None:
        assert self._has_begun.wait(_SECONDS * time_scale())

    def end(self) -> None:
        self._may_end.set()


@contextmanager
def _meanwhile(function: Callable[[], object]) -> Generator[None]:
    """Call *function* on a thread, which has ended when the block has."""

    def call() -> None:
        with suppress(OutcomeUnknownError):  # on a slow machine
            function()

    thread = threading.Thread(target=call)
    thread.start()
    yield
    thread.join(_SECONDS * time_scale())
    assert not thread.is_alive()


def _term_after(term: Leadership, election: LeaderElection[str]) -> str | None:
    """Return the leader of a later term than *term*."""
    leader = election.get_leader()
    return leader.id if leader is not None and leader.epoch > term.epoch else None


def _waits(second: LeaderElection[str], step: _Step) -> None:
    """Check that the second candidate leads after the end of *step*, and not before."""
    throughout(lambda: second.leadership("b") is None, seconds=A_MOMENT, what="b does not lead yet")
    step.end()
    assert second.wait_elected("b", _SECONDS * time_scale())


class LettingGoTests(Suite):
    """A term ends locally at once, and in the store when the work under it has let go."""

    @_EACH_END
    def test_L50_on_elected(self, open_client: OpenClient, end: End) -> None:
        """No other candidate leads before a running on_elected has returned."""
        client, step = open_client(), _Step()
        first, second = client.leader_election("s"), open_client().leader_election("s")
        try:
            first.nominate("a", "", on_elected=step)
            step.wait_begun()
            term = term_of(first, "a")
            second.nominate("b", "")
            with _meanwhile(lambda: end(client, first)):
                assert term.lost.wait(_SECONDS * time_scale())
                assert not term.is_valid()
                _waits(second, step)
        finally:
            step.end()

    def test_L50_on_lost(self, open_client: OpenClient) -> None:
        """No other candidate leads before the on_lost of a resigning candidate has returned."""
        first, second = (open_client().leader_election("s") for _ in range(2))
        step = _Step()
        try:
            first.nominate("a", "", on_lost=step)
            second.nominate("b", "")
            with _meanwhile(lambda: first.resign("a")):
                step.wait_begun()
                _waits(second, step)
        finally:
            step.end()

    @_EACH_END
    def test_L50_block(self, open_client: OpenClient, end: End) -> None:
        """No other candidate leads before the block of a lead in another thread is left."""
        client, step = open_client(), _Step()
        first, second = client.leader_election("s"), open_client().leader_election("s")

        terms = Recorder[Leadership]()

        def work() -> None:
            with first.lead("a", "") as term:
                terms(term)
                step()

        try:
            with _meanwhile(work):
                (term,) = terms.expect_count(1)
                second.nominate("b", "")
                with _meanwhile(lambda: end(client, first)):
                    assert term.lost.wait(_SECONDS * time_scale())
                    _waits(second, step)
        finally:
            step.end()

    @pytest.mark.parametrize("end", ["recipe closed", "locator closed"])
    @pytest.mark.parametrize("recipe", _RECIPES.values(), ids=_RECIPES)
    def test_L50_lock(self, open_client: OpenClient, recipe: Recipe, end: str) -> None:
        """A recipe that is closed with a grip is free when the block of the grip is left."""
        client, step = open_client(), _Step()
        (ours, acquire), (_, theirs) = recipe(client), recipe(open_client())
        grips = Recorder[Grip]()

        def work() -> None:
            with acquire(_SECONDS * time_scale()) as grip:
                grips(grip)
                step()

        try:
            with _meanwhile(work):
                (grip,) = grips.expect_count(1)
                with _meanwhile(client.close if end == "locator closed" else ours.close):
                    assert grip.lost.wait(_SECONDS * time_scale())
                    assert not grip.is_valid()
                    with pytest.raises(NotAcquiredError):
                        theirs(A_MOMENT)
                    step.end()
                    theirs(_SECONDS * time_scale()).release()
        finally:
            step.end()

    @pytest.mark.fault
    @pytest.mark.parametrize("then", ["stays", "resigns"])
    def test_L50_lost_session(
        self, open_client: OpenClient, harness: Harness, evidence: Evidence, then: str
    ) -> None:
        """A session that was not renewed in time is kept while work goes on under a term of it.

        No other candidate leads before the store would have ended it by itself.
        """
        clock, margin = SystemClock(), round(_LARGE_MARGIN * harness.patient[_SESSION])
        client = open_client(**harness.patient, **{"plugin.lease.margin.ms": margin})
        first = client.leader_election("s")
        second = open_client(**harness.steady).leader_election("s")
        step = _Step()
        try:
            first.nominate("a", "", on_elected=step)
            step.wait_begun()
            term = term_of(first, "a")
            second.nominate("b", "")
            with supported(harness.faults(client).cut_off):
                assert term.lost.wait(_SECONDS * time_scale())
            evidence.saw("sessions lost by the clock", int("not renewed" in term.ending_reason))
            with _meanwhile(partial(first.resign, "a") if then == "resigns" else lambda: None):
                following = eventually(partial(_term_after, term, second), what="another term")
                assert following == "a" or clock.now() >= term.deadline + margin / 1000
                assert then == "stays" or following == "b"
        finally:
            step.end()

    @pytest.mark.parametrize("end", ["resign", "close", "locator closed"])
    def test_L50_elector(self, open_client: OpenClient, end: str) -> None:
        """The next broker becomes the leader when the former one's callback has returned."""
        client, step = open_client(), _Step()
        one, two = ElectorLog(client, 1, resigning=step), ElectorLog(open_client(), 2)
        ends = {"resign": one.adapter.resign, "close": one.adapter.close}
        try:
            with two.adapter as other:
                other.resign()
                one.adapter.startup()
                one.expect_leading()
                other.elect()
                before = two.calls
                with _meanwhile(ends.get(end, client.close)):
                    step.wait_begun()
                    throughout(lambda: two.calls == before, seconds=A_MOMENT)
                    step.end()
                    two.expect(*before, BECOMING)
            assert one.calls == [BECOMING, RESIGNING]
        finally:
            step.end()

    @_EACH_END
    def test_L50_work_that_ends_itself(self, open_client: OpenClient, end: End) -> None:
        """An on_elected that ends its own term has let go by that, and waits for nothing."""
        client, step = open_client(), _Step()
        first, second = client.leader_election("s"), open_client().leader_election("s")

        def work(_term: Leadership) -> None:
            end(client, first)
            step()

        try:
            first.nominate("a", "", on_elected=work)
            step.wait_begun()
            second.nominate("b", "")
            assert second.wait_elected("b", _SECONDS * time_scale())
        finally:
            step.end()

    @_EACH_END
    def test_L50_work_that_never_ends(
        self, open_client: OpenClient, harness: Harness, end: End
    ) -> None:
        """Work that does not let go holds the service no longer than its lease, and no close."""
        client, step = open_client(**harness.timeouts), _Step()
        first, second = client.leader_election("s"), open_client().leader_election("s")
        try:
            first.nominate("a", "", on_elected=step)
            step.wait_begun()
            second.nominate("b", "")
            with _meanwhile(lambda: end(client, first)):
                pass
            assert second.wait_elected("b", _SECONDS * time_scale())
        finally:
            step.end()
