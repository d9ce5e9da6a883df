"""The lock under trouble that only the core has to deal with."""

import gc
import os
import signal
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor, wait
from enum import Enum
from pathlib import Path

import pytest

from kip30 import (
    ClosedError,
    GripLostError,
    InvalidNameError,
    LifecycleError,
    NotAcquiredError,
    OutcomeUnknownError,
    PluginLocator,
    StoreError,
)
from kip30.driver.kit.futures import failed
from kip30.recipes import Lock
from kip30.recipes.lock import LockElection, lock_service
from kip30.recipes.steps import Await, Call
from kip30.runtime.candidate_line import line_group
from kip30_conformance.polling import eventually, throughout, time_scale

from .conftest import OpenClient
from .trouble import faults, frozen

both = pytest.mark.parametrize("fair", [False, True], ids=["any order", "fair"])


def _line(client: PluginLocator) -> frozenset[str]:
    return client.group_membership(lock_service("x")).membership_list()


@both
def test_an_interrupted_caller_neither_waits_nor_holds(
    open_client: OpenClient, *, fair: bool
) -> None:
    first, second = open_client(), open_client()
    holder, waiter = Lock(first, "x", fair=fair), Lock(second, "x", fair=fair)
    grip = holder.acquire()
    interrupt = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    interrupt.start()
    with pytest.raises(KeyboardInterrupt):
        waiter.acquire()
    interrupt.join()
    grip.release()
    throughout(lambda: holder.holder() is None, seconds=0.2)
    eventually(lambda: not _line(first))


@both
@pytest.mark.parametrize("operation", ["membership.claim", "election.claim", "election.release"])
def test_lost_answers_leave_one_holder_and_nothing_behind(
    open_client: OpenClient, operation: str, *, fair: bool
) -> None:
    client, other = open_client(), open_client()
    lock, theirs = Lock(client, "x", fair=fair), Lock(other, "x", fair=fair)
    faults(client).lose_answers(operation, times=2)
    for _ in range(3):
        with lock.acquire() as grip:
            grip.check()
            assert theirs.try_acquire() is None
    with theirs.acquire(10) as grip:
        grip.check()
    eventually(lambda: not _line(other))


@both
def test_a_caller_waits_on_while_the_store_is_silent(
    open_client: OpenClient, *, fair: bool
) -> None:
    client = open_client()
    lock = Lock(client, "x", fair=fair)
    for operation in ("membership.claim", "election.claim"):
        faults(client).fail(operation, times=None)
    with pytest.raises(NotAcquiredError):
        lock.acquire(0.3)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire)
        throughout(lambda: not waiting.done(), seconds=2)
        faults(client).clear()
        waiting.result().release()


def test_a_place_that_is_lost_with_the_session_is_taken_again(open_client: OpenClient) -> None:
    first, second = open_client(), open_client()
    grip, lock = Lock(first, "x", fair=True).acquire(), Lock(second, "x", fair=True)
    eventually(lambda: not _line(first), what="the holder has left the line")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire)
        (place,) = eventually(lambda: _line(first))
        faults(second).expire_session()
        eventually(lambda: _line(first) - {place})
        assert not waiting.done()
        grip.release()
        waiting.result().release()
    eventually(lambda: not _line(first))


def test_a_term_that_is_over_before_its_caller_sees_it_is_followed_by_another_attempt(
    client: PluginLocator,
) -> None:
    election = LockElection.of(client, lock_service("x"))
    steps = election.elected("", election.deadline(None), None)
    add = next(steps)
    assert isinstance(add, Call)
    tried = steps.send(add.function())
    assert isinstance(tried, Await)
    wait(tried.futures)
    faults(client).expire_session()
    eventually(lambda: not election._campaign._candidacies, what="the candidate is withdrawn")
    term = next(steps)
    assert isinstance(term, Await)
    wait(term.futures)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value is None


@both
def test_a_caller_that_waits_learns_that_the_locator_was_closed(
    open_client: OpenClient, *, fair: bool
) -> None:
    first, second = open_client(), open_client()
    grip, lock = Lock(first, "x", fair=fair).acquire(), Lock(second, "x", fair=fair)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire)
        throughout(lambda: not waiting.done(), seconds=0.3)
        second.close()
        with pytest.raises(ClosedError):
            waiting.result()
    grip.release()


def test_a_grip_of_a_closed_locator_is_over(client: PluginLocator) -> None:
    grip = Lock(client, "x").acquire()
    client.close()
    assert not grip.is_valid()
    with pytest.raises(GripLostError):
        grip.check()
    grip.release()
    grip.close()


@both
def test_a_grip_that_is_lost_does_not_hold_the_lock_again(
    open_client: OpenClient, *, fair: bool
) -> None:
    client, other = open_client(), open_client()
    grip, theirs = Lock(client, "x", fair=fair).acquire(), Lock(other, "x", fair=fair)
    faults(client).expire_session()
    assert grip.lost.wait(10)
    with theirs.acquire(10) as later:
        assert later.token > grip.token
    throughout(lambda: theirs.holder() is None, seconds=0.5)
    grip.release()


def test_an_unconfirmed_release_raises_outcome_unknown(open_client: OpenClient) -> None:
    client, other = open_client(), open_client()
    grip = Lock(client, "x").acquire()
    faults(client).fail("election.release", times=None)
    with pytest.raises(OutcomeUnknownError, match="not confirmed"):
        grip.release()
    assert not grip.is_valid()
    faults(client).clear()
    Lock(other, "x").acquire(10).release()


def test_a_forked_child_holds_nothing_and_releases_nothing(client: PluginLocator) -> None:
    lock = Lock(client, "x")
    grip = lock.acquire()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that this process has threads
        child = os.fork()
    if not child:
        try:
            grip.close()
            seen = [not grip.is_valid(), grip.token > 0]
            with pytest.raises(LifecycleError):
                lock.acquire(0)
            os.write(write, b"1" if all(seen) else b"0")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"1"
    os.close(read)
    os.close(write)
    grip.check()
    assert lock.try_acquire() is None


@both
def test_nothing_is_kept_of_locks_that_were_released(client: PluginLocator, *, fair: bool) -> None:
    store = client.__dict__["_store"]
    lock = Lock(client, "x", fair=fair)
    for _ in range(50):
        lock.acquire().release()
    lock.close()
    eventually(lambda: not store.subscriptions._feeds, within=20)
    eventually(lambda: not store._active_claims, within=20)


@both
@pytest.mark.filterwarnings("ignore:a locator of the store:ResourceWarning")
def test_a_lock_is_free_once_all_that_held_it_is_collected(
    client: PluginLocator, tmp_path: Path, *, fair: bool
) -> None:
    other = Lock(client, "x")

    def hold() -> None:
        directory = str(tmp_path / "state")
        settings = {"plugin.backend": "embedded", "plugin.embedded.directory": directory}
        Lock(PluginLocator().startup(settings), "x", fair=fair).acquire().check()

    def is_free() -> bool:
        gc.collect()  # a thread may still have held what it has just run
        return other.holder() is None

    hold()
    eventually(is_free)


def test_threads_of_one_client_pass_a_lock_on(client: PluginLocator) -> None:
    lock, inside = Lock(client, "x"), threading.Lock()

    def use(_: int) -> None:
        for _ in range(5):
            with lock.acquire():
                assert inside.acquire(blocking=False)
                inside.release()

    began = time.monotonic()
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(use, range(20)))
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("name", ["", "n" * 300])
def test_a_lock_needs_a_name(client: PluginLocator, name: str) -> None:
    with pytest.raises(InvalidNameError):
        Lock(client, name)


class Name(str, Enum):  # noqa: UP042  f-strings show no value of such a one
    NIGHTLY = "nightly"


@both
def test_a_lock_named_by_an_enum_excludes_one_named_by_its_text(
    open_client: OpenClient, *, fair: bool
) -> None:
    first, second = open_client(), open_client()
    with Lock(first, Name.NIGHTLY, fair=fair).acquire() as grip:
        assert grip.service == "kip30.lock/nightly"
        assert Lock(second, "nightly", fair=fair).try_acquire() is None


@both
def test_a_lock_that_is_closed_ends_at_once_while_the_store_is_silent(
    open_client: OpenClient, tmp_path: Path, *, fair: bool
) -> None:
    seconds = time_scale()
    patient = {"plugin.session.timeout.ms": 60_000}
    client = open_client(**{**patient, "plugin.operation.timeout.ms": round(1000 * seconds)})
    lock, begun = Lock(client, "x", fair=fair), threading.Event()
    grip = lock.acquire()
    eventually(lambda: not _line(client))  # the holder has left it

    def wait_for_it() -> None:
        with pytest.raises(LifecycleError):
            lock.acquire()

    def close() -> float:
        begun.set()
        began_at = time.monotonic()
        lock.close()
        return time.monotonic() - began_at

    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(wait_for_it)
        eventually(lambda: _waits(client, fair=fair))
        with frozen(tmp_path):
            closing = pool.submit(close)
            assert begun.wait(10)
            assert grip.lost.wait(seconds / 2)
            assert not grip.is_valid()
            assert closing.result() < 1.5 * seconds
        waiting.result()
    eventually(lambda: not _line(client))


@pytest.mark.parametrize("waits", [False, True], ids=["one attempt", "waits"])
def test_a_caller_does_not_overtake_an_earlier_one_of_its_object(
    open_client: OpenClient, *, waits: bool
) -> None:
    """It calls when the lock is free, and its client is not notified of that yet."""
    first, second = open_client(), open_client()
    grip, lock = Lock(first, "x").acquire(), Lock(second, "x")
    with ThreadPoolExecutor(2) as pool:
        earlier = pool.submit(lock.acquire, 10 * time_scale())
        eventually(lambda: _waits(first, fair=False))
        faults(second).watches_paused = True
        grip.release()
        later = pool.submit(lock.acquire, 10 * time_scale() if waits else 0)
        held = earlier.result()
        faults(second).watches_paused = False
        if waits:
            throughout(lambda: not later.done(), seconds=0.2)
            held.release()
            assert later.result().token > held.token
            later.result().release()
        else:
            with pytest.raises(NotAcquiredError):
                later.result()
            held.release()


def test_a_later_caller_tries_itself_if_the_earlier_one_has_given_up(
    open_client: OpenClient,
) -> None:
    """The claim of the earlier one is granted too late for it."""
    seconds = time_scale()
    first = open_client()
    timeout = round(10_000 * seconds)
    second = open_client(
        **{"plugin.session.timeout.ms": timeout, "plugin.operation.timeout.ms": timeout}
    )
    grip, lock = Lock(first, "x").acquire(), Lock(second, "x")
    with ThreadPoolExecutor(2) as pool:
        earlier = pool.submit(lock.acquire, seconds)
        eventually(lambda: _waits(first, fair=False))
        faults(second).watches_paused = True
        grip.release()
        faults(second).delay("election.claim", 2 * seconds)
        later = pool.submit(lock.acquire, 0)
        with pytest.raises(NotAcquiredError):
            earlier.result()
        faults(second).watches_paused = False
        later.result().release()
        assert faults(second).counted()


def test_a_later_caller_is_refused_with_the_error_of_its_attempt(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier caller of its object, which makes the attempt for it, waits on."""
    first, second = open_client(), open_client()
    grip, lock = Lock(first, "x").acquire(), Lock(second, "x")
    with ThreadPoolExecutor(1) as pool:
        earlier = pool.submit(lock.acquire, 10 * time_scale())
        eventually(lambda: _waits(first, fair=False))
        monkeypatch.setattr(
            second.backend.election, "claim", lambda *_: failed(StoreError("refused"))
        )
        with pytest.raises(StoreError, match="refused"):
            lock.acquire()
        assert not earlier.done()
        monkeypatch.undo()
        grip.release()
        earlier.result().release()


def _waits(client: PluginLocator, *, fair: bool) -> bool:
    """Return whether a caller waits for a lock that is held."""
    line = lock_service("x") if fair else line_group(lock_service("x"))
    return bool(client.group_membership(line).membership_list())
