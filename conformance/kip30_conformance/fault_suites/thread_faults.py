"""Moments in which the system cannot start a thread: G21.

Such a moment may delay work that needs a thread, or fail a call with nothing done. After it,
everything must work as before.
"""

import gc
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import NoReturn

import pytest

from kip30 import DefiniteError, Kip30Error, PluginLocator, ValueChange
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.process_resources import expect_no_more_than, resources_held
from kip30_conformance.suite import OpenClient, Suite, supported

_KEY = "k"


class Refusals:
    """Counts the threads that were refused."""

    def __init__(self) -> None:
        """Start with none."""
        self.count = 0

    def refuse(self) -> NoReturn:
        """Refuse a thread, with CPython's message."""
        self.count += 1
        raise RuntimeError("can't start new thread")


@contextmanager
def no_thread_to_spare(*, but_here: bool = False) -> Generator[Refusals]:
    """Refuse every thread that is to be started in this process in the block.

    Those that this very thread starts are not refused, if *but_here*: injecting a fault needs some.
    """
    refusals, start, here = Refusals(), threading.Thread.start, threading.current_thread()

    def refuse(thread: threading.Thread) -> None:
        if not but_here or threading.current_thread() is not here:
            refusals.refuse()
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield refusals


class Life:
    """A client that listens, is a member, and leads."""

    def __init__(self, client: PluginLocator) -> None:
        """Start idle."""
        self.client = client
        self.election = client.leader_election("s")
        self._heard: Recorder[ValueChange[str]] = Recorder()
        self._written = 0

    def begin(self) -> None:
        """Listen and lead."""
        self.listen()
        assert self.nominate()

    def listen(self) -> None:
        """Register the listener, unless it is."""
        self.client.listener_registry().add_value_change_listener(_KEY, self._heard)

    def nominate(self) -> bool:
        """Nominate the candidate, unless it is; return whether it leads."""
        return self.election.nominate("c", "")

    def is_leading(self) -> bool:
        """Return whether the candidate leads by its own clock."""
        term = self.election.leadership("c")
        return term is not None and term.is_valid()

    def require_all_well(self, harness: Harness, within: float) -> None:
        """Require that calls work, that changes are notified, and that a leadership is kept."""
        eventually(self._can_write, within=within, what="a write succeeds")
        self._expect_news(within)
        eventually(self.is_leading, within=within, what="it leads")
        session = harness.session_seconds
        throughout(self.is_leading, seconds=1.5 * session, what="the leadership is renewed")

    def _can_write(self) -> bool:
        with suppress(Kip30Error):
            self.write()
            return True
        return False

    def write(self) -> str:
        """Write another value and return it."""
        self._written += 1
        value, storage = str(self._written), self.client.storage()
        if storage.get(_KEY) is None:
            storage.put(_KEY, value)
        else:
            storage.update(_KEY, value)
        return value

    def _expect_news(self, within: float) -> None:
        value = self.write()
        self._heard.expect(lambda change: change.value == value, within=within)


class ThreadFaultTests(Suite):
    """A moment without a spare thread delays work, and does no lasting harm."""

    @pytest.fixture
    def patience(self, harness: Harness) -> float:
        """Return within how many seconds all must work again."""
        return 3 * harness.crash_patience + 5

    @pytest.fixture
    def lives(self, harness: Harness, open_client: OpenClient) -> Callable[[], Life]:
        """Return a factory of clients that do not lose their session to a slow machine."""
        return lambda: Life(open_client(**harness.patient))

    @pytest.mark.fault
    def test_G21_startup(self, harness: Harness, root: str, evidence: Evidence) -> None:
        """A startup while no thread can be started says so, leaves nothing, and can be repeated."""
        harness.open(root).close()
        before = resources_held()
        with (
            no_thread_to_spare() as refusals,
            pytest.raises(DefiniteError, match="thread"),
        ):
            harness.open(root)
        evidence.saw("threads refused", refusals.count)
        expect_no_more_than(before)
        with harness.open(root, **harness.patient) as client:
            assert client.storage().get(_KEY) is None
        expect_no_more_than(before)

    @pytest.mark.fault
    def test_G21_listener(
        self, harness: Harness, lives: Callable[[], Life], patience: float, evidence: Evidence
    ) -> None:
        """A listener added while no thread can be started is called, or can be added later."""
        life = lives()
        with no_thread_to_spare() as refusals:
            if not _is_refused(life.listen):
                life.write()
        evidence.saw("threads refused", refusals.count)
        life.listen()
        assert life.nominate()
        life.require_all_well(harness, patience)

    @pytest.mark.fault
    def test_G21_nomination(
        self, harness: Harness, lives: Callable[[], Life], patience: float, evidence: Evidence
    ) -> None:
        """A candidate nominated while no thread can be started leads, or can be nominated later."""
        life = lives()
        with no_thread_to_spare() as refusals:
            _is_refused(life.nominate)
        evidence.saw("threads refused", refusals.count)
        life.nominate()
        life.listen()
        life.require_all_well(harness, patience)

    @pytest.mark.fault
    def test_G21_lost_session(
        self, harness: Harness, lives: Callable[[], Life], patience: float, evidence: Evidence
    ) -> None:
        """A session that ends while no thread can be started is not relied on, and is replaced."""
        life = lives()
        life.begin()
        faults = harness.faults(life.client)
        epoch = _epoch(life)
        with no_thread_to_spare(but_here=True):
            supported(faults.expire_session)
            evidence.saw("injected faults", faults.counted())
            eventually(
                lambda: not life.is_leading() or _epoch(life) != epoch,
                within=2 * harness.crash_patience + harness.session_seconds,
                what="the leadership is over",
            )
        life.require_all_well(harness, patience)
        assert _epoch(life) > epoch

    @pytest.mark.fault
    def test_G21_lost_connection(
        self, harness: Harness, lives: Callable[[], Life], patience: float, evidence: Evidence
    ) -> None:
        """A connection that is remade while no thread can be started serves all again."""
        life = lives()
        life.begin()
        faults = harness.faults(life.client)
        with no_thread_to_spare(but_here=True):
            with supported(faults.cut_off):
                eventually(lambda: not _can_read(life), what="the store is out of reach")
            evidence.saw("injected faults", faults.counted())
            with suppress(AssertionError):
                eventually(lambda: _can_read(life), within=harness.session_seconds)
        life.require_all_well(harness, patience)

    @pytest.mark.fault
    def test_G21_close(self, harness: Harness, root: str, evidence: Evidence) -> None:
        """A close while no thread can be started raises nothing and leaves nothing behind."""
        harness.open(root).close()
        before = resources_held()
        life = Life(harness.open(root, **harness.patient))
        life.begin()
        with no_thread_to_spare() as refusals:
            life.client.close()
        evidence.saw("a close, and how many threads it was refused", f"{refusals.count}")
        del life
        expect_no_more_than(before)

    @pytest.mark.fault
    @pytest.mark.filterwarnings("ignore:a locator of the store:ResourceWarning")
    def test_G21_dropped(
        self, harness: Harness, root: str, open_client: OpenClient, evidence: Evidence
    ) -> None:
        """A client dropped while no thread can be started is closed once one can."""
        other: PluginLocator | None = harness.open(root, **harness.patient)
        assert other is not None
        other.group_membership("g").join("m", "")
        with no_thread_to_spare() as refusals:
            other = None
            gc.collect()
        evidence.saw("a drop, and how many threads it was refused", f"{refusals.count}")
        group = open_client(**harness.patient).group_membership("g")
        eventually(
            lambda: not group.membership_list(),
            within=harness.session_seconds + 1,
            what="the group is empty",
        )


def _is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except DefiniteError:
        return True
    return False


def _can_read(life: Life) -> bool:
    with suppress(Kip30Error):
        life.client.storage().get(_KEY)
        return True
    return False


def _epoch(life: Life) -> int:
    term = life.election.leadership("c")
    return 0 if term is None else term.epoch
