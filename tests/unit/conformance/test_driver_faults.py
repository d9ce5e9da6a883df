"""Faults between the library and a driver happen as asked, and as often, to the right calls."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from kip30.driver import Context
from kip30.driver.clock import SystemClock
from kip30.driver.lease import Lease
from kip30.driver.records import Claim, Condition, Entry, Kind, Target, Version, Write
from kip30.errors import ClosedError, OutcomeUnknownError, UnavailableError
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings
from kip30_conformance.driver_faults import ALL, DriverFault, Effect
from kip30_conformance.polling import time_scale
from tests.embedded_faults import faults_of

KEY = Key("ns", "key")
WRITE = Write(KEY, "n", b"1", Condition.ABSENT)


CLAIM = Claim(
    "m",
    Entry(Version(1), "n", b""),
    Lease(SystemClock(), sent_at=0, timeout_seconds=1, margin_seconds=0),
    1,
)
CALLS: dict[str, Callable[[EmbeddedBackend], Future[Any]]] = {
    "membership.claim": lambda backend: backend.membership.claim("g", "m", "n", b""),
    "membership.replace": lambda backend: backend.membership.replace("g", CLAIM, "n", b""),
    "membership.release": lambda backend: backend.membership.release("g", CLAIM),
    "election.claim": lambda backend: backend.election.claim("s", "c", "n", b""),
    "election.release": lambda backend: backend.election.release("s", CLAIM),
    "storage.read": lambda backend: backend.storage.read([KEY]),
    "storage.write": lambda backend: backend.storage.write(WRITE),
    "storage.write_many": lambda backend: backend.storage.write_many([WRITE])[0],
    "storage.list_names": lambda backend: backend.storage.list_names("ns", "", 1),
    "observe.snapshot": lambda backend: backend.observe.snapshot(Target(Kind.GROUP, "g")),
}


@pytest.fixture
def open_backend(tmp_path: Path) -> Iterator[Callable[[], EmbeddedBackend]]:
    settings = EmbeddedSettings(directory=tmp_path / "state")
    context = Context(
        clock=SystemClock(),
        namespace="root",
        session_timeout_seconds=3 * time_scale(),
        operation_timeout_seconds=2 * time_scale(),
        connect_timeout_seconds=2 * time_scale(),
        margin_seconds=0.3 * time_scale(),
    )
    with ExitStack() as opened:
        yield lambda: opened.enter_context(closing(EmbeddedBackend(context, settings)))


@pytest.fixture
def backend(open_backend: Callable[[], EmbeddedBackend]) -> EmbeddedBackend:
    return open_backend()


@pytest.mark.parametrize("operation", CALLS)
def test_every_method_can_fail(backend: EmbeddedBackend, operation: str) -> None:
    faults_of(backend).add(DriverFault(operation=operation))
    assert isinstance(CALLS[operation](backend).exception(), UnavailableError)
    assert not faults_of(backend).armed


def test_a_failed_write_did_nothing_and_a_lost_one_did(backend: EmbeddedBackend) -> None:
    faults_of(backend).add(DriverFault(operation="storage.write", match="ns/key"))
    assert isinstance(backend.storage.write(WRITE).exception(), UnavailableError)
    assert backend.storage.read([KEY]).result() == [None]
    faults_of(backend).add(DriverFault(operation="storage.write", effect=Effect.LOSE_ANSWER))
    assert isinstance(backend.storage.write(WRITE).exception(), OutcomeUnknownError)
    (entry,) = backend.storage.read([KEY]).result()
    assert entry is not None
    assert entry.nonce == "n"


def test_a_delayed_answer_comes_later(backend: EmbeddedBackend) -> None:
    faults_of(backend).add(
        DriverFault(operation="storage.write", effect=Effect.DELAY, seconds=0.05)
    )
    started = time.monotonic()
    future = backend.storage.write(WRITE)
    assert not future.done()
    version = future.result(5)
    assert time.monotonic() - started >= 0.05
    (entry,) = backend.storage.read([KEY]).result()
    assert entry is not None
    assert entry.version == version


def test_closing_ends_a_delay_with_nothing_done(open_backend: Any) -> None:
    backend = open_backend()
    faults_of(backend).add(
        DriverFault(operation="storage.write", effect=Effect.DELAY, seconds=1000)
    )
    future = backend.storage.write(WRITE)
    backend.close()
    assert isinstance(future.exception(5), ClosedError)
    assert open_backend().storage.read([KEY]).result() == [None]


def test_a_fault_strikes_matching_calls_as_often_as_given(backend: EmbeddedBackend) -> None:
    faults_of(backend).add(DriverFault(operation="storage.read", match="ns/b", times=2))
    struck = [backend.storage.read([Key("ns", name)]).exception() is not None for name in "abbabc"]
    assert struck == [False, True, True, False, False, False]
    faults_of(backend).add(DriverFault(operation="storage.read", times=None))
    assert all(backend.storage.read([KEY]).exception() for _ in range(5))
    faults_of(backend).clear()
    assert backend.storage.read([KEY]).result() == [None]


def test_cut_off_calls_are_answered_late_and_do_nothing(backend: EmbeddedBackend) -> None:
    faults_of(backend).add(DriverFault(operation=ALL, effect=Effect.CUT_OFF, times=None, seconds=1))
    futures = [call(backend) for call in CALLS.values()]
    assert not any(future.done() for future in futures)
    assert all(isinstance(future.exception(30), UnavailableError) for future in futures)
    faults_of(backend).clear()
    assert backend.storage.read([KEY]).result() == [None]
