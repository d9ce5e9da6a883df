"""A system that has no thread to spare, and work that fails with unexpected errors."""

import logging
import threading

import pytest

from kip30 import UnavailableError
from kip30.driver.kit.thread_pool import ThreadPool
from kip30.driver.records import Kind, Snapshot, Target
from kip30.names import Key
from kip30_backends.consul import ConsulBackend
from kip30_backends.consul.client.operation_requests import OperationRequests
from kip30_backends.consul.session import Session
from kip30_conformance.polling import eventually, time_scale
from tests.unit.clients import Open
from tests.unit.threads import no_threads

from .admin import Admin

NONCE = "00" * 16
SOON = 5
TIMES = 5
"""More than a pool has threads."""


@pytest.fixture
def backend(open_client: Open) -> ConsulBackend:
    one = open_client().backend
    assert isinstance(one, ConsulBackend)
    return one


def _session(backend: ConsulBackend) -> Session | None:
    return backend._resources.sessions._current.known()


def _lose(backend: ConsulBackend) -> None:
    session = _session(backend)
    assert session is not None
    backend._resources.sessions.mark_lost(session)


def test_a_pool_without_threads_refuses_work_and_accepts_it_later() -> None:
    pool, refused, accepted = ThreadPool("pool"), threading.Event(), threading.Event()
    with no_threads():
        for _ in range(TIMES):
            with pytest.raises(UnavailableError, match="can't start new thread"):
                pool.do(refused.set)
    pool.do(accepted.set)
    assert accepted.wait(SOON * time_scale())
    pool.stop()
    assert not refused.is_set()


def test_a_pool_with_one_thread_does_all_with_it() -> None:
    pool, go, done = ThreadPool("pool"), threading.Event(), threading.Semaphore(0)
    pool.do(lambda: go.wait(SOON * time_scale()))
    with no_threads():
        for _ in range(TIMES):
            pool.do(done.release)
    go.set()
    pool.stop()
    assert all(done.acquire(blocking=False) for _ in range(TIMES))


def test_a_pool_outlives_what_its_work_raises(caplog: pytest.LogCaptureFixture) -> None:
    pool, done = ThreadPool("pool"), threading.Event()

    def fail() -> None:
        raise ValueError("of no kind")

    for _ in range(TIMES):
        pool.do(fail)
    pool.do(done.set)
    pool.stop()
    assert done.is_set()
    assert caplog.text.count("ValueError: of no kind") == TIMES


def test_reads_fail_without_a_thread_and_later_reads_succeed(backend: ConsulBackend) -> None:
    key = Key("threads", "k")
    assert not backend._resources.calls.pool._threads
    with no_threads():
        reads = [backend.storage.read([key]) for _ in range(TIMES)]
        assert all(read.done() for read in reads)
        assert {type(read.exception()) for read in reads} == {UnavailableError}
        many = backend.storage.read([key, Key("threads", "l")])
        assert many.done()
        assert type(many.exception()) is UnavailableError
    later = backend.storage.read([key])
    eventually(later.done)
    assert later.result() == [None]


def test_a_session_without_a_thread_to_renew_it_is_ended(
    backend: ConsulBackend, admin: Admin
) -> None:
    _lose(backend)
    before = _there(admin)
    with no_threads():
        for _ in range(TIMES):
            claim = backend.membership.claim("g", "m", NONCE, b"")
            assert type(claim.exception()) is UnavailableError
        assert _there(admin) < before
        assert _session(backend) is None
    backend.membership.claim("g", "m", NONCE, b"").result()
    session = _session(backend)
    assert session is not None
    assert session.ident in _there(admin)
    backend.close()
    assert session.ident not in _there(admin)


def _there(admin: Admin) -> set[str]:
    return {one["ID"] for one in admin.sessions()}


@pytest.mark.parametrize("others", [0, 4], ids=["alone", "shared"])
def test_a_watch_is_refused_without_a_thread_and_granted_later(
    backend: ConsulBackend, others: int
) -> None:
    heard: list[Snapshot] = []
    for number in range(others):
        backend.observe.watch(Target(Kind.VALUE, "threads", str(number)), lambda _state: None)
    target = Target(Kind.VALUE, "threads", "k")
    with no_threads(), pytest.raises(UnavailableError, match="can't start new thread"):
        backend.observe.watch(target, heard.append)
    assert not heard
    backend.observe.watch(target, heard.append)
    eventually(lambda: heard)
    backend.close()


@pytest.mark.parametrize("others", [0, 4], ids=["alone", "shared"])
def test_an_interrupt_as_a_watch_starts_leaves_no_thread(
    backend: ConsulBackend, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    for number in range(others):
        backend.observe.watch(Target(Kind.VALUE, "threads", str(number)), lambda _state: None)
    begun, start = list[threading.Thread](), threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "kip30-consul-watch":
            begun.append(thread)
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        backend.observe.watch(Target(Kind.VALUE, "threads", "k"), lambda _state: None)
    monkeypatch.undo()
    (thread,) = begun
    eventually(lambda: not thread.is_alive(), what="the thread has ended")
    heard: list[Snapshot] = []
    backend.observe.watch(Target(Kind.VALUE, "threads", "k"), heard.append)
    eventually(lambda: heard)


def test_a_listener_that_raises_is_logged_and_called_again(
    backend: ConsulBackend, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Snapshot] = []

    def hear(state: Snapshot) -> None:
        heard.append(state)
        if len(heard) == 1:
            raise ValueError("of no kind")

    backend.observe.watch(Target(Kind.VALUE, "threads", "k"), hear)
    eventually(lambda: len(heard) == 2, within=2 * SOON * time_scale())
    (told,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert told.exc_info is not None
    assert "the watch of" in told.getMessage()


def test_a_session_is_renewed_after_an_unexpected_error(
    backend: ConsulBackend, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sessions = backend._resources.sessions
    session, renewed = sessions._current.known(), sessions._is_renewed
    assert session is not None
    trouble = [ValueError("of no kind")]

    def sometimes(session: Session, requests: OperationRequests) -> bool:
        if trouble:
            raise trouble.pop()
        return renewed(session, requests)

    monkeypatch.setattr(sessions, "_is_renewed", sometimes)
    eventually(lambda: not trouble)
    before = session.lease.deadline
    eventually(lambda: session.lease.deadline > before, what="it was renewed since")
    assert "ValueError: of no kind" in caplog.text
