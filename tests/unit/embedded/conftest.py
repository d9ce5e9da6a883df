"""Backends on a directory of the test's own, and real processes beside them."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30.driver import Context
from kip30.driver.clock import SystemClock
from kip30_backends.embedded import EmbeddedBackend, EmbeddedSettings
from kip30_conformance.polling import time_scale
from tests.unit.children import run_in_child
from tests.unit.clients import Open as OpenClient

CHILD = Path(__file__).with_name("child.py")


class Open(Protocol):
    """Opens a backend that is closed when the test ends."""

    def __call__(
        self, *, namespace: str = ..., session: float = ..., operation: float = ..., **settings: Any
    ) -> EmbeddedBackend: ...


class Child:
    """Another process with a backend on the same directory; see child.py for its commands."""

    def __init__(self, directory: Path, *words: str) -> None:
        command = [sys.executable, str(CHILD), str(directory), *words]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def locked(directory: Path) -> Callable[[], Any]:
    @contextmanager
    def by_another_program() -> Generator[None]:
        file = directory / "kip30.db"
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield

    return by_another_program


@pytest.fixture
def took() -> Callable[[Callable[[], object]], float]:
    def seconds(work: Callable[[], object]) -> float:
        start = time.monotonic()
        work()
        return (time.monotonic() - start) / time_scale()

    return seconds


@pytest.fixture
def open_backend(directory: Path) -> Iterator[Open]:
    opened: list[EmbeddedBackend] = []

    def opener(
        *, namespace: str = "root", session: float = 3, operation: float = 2, **settings: Any
    ) -> EmbeddedBackend:
        context = Context(
            clock=SystemClock(),
            namespace=namespace,
            session_timeout_seconds=session * time_scale(),
            operation_timeout_seconds=operation * time_scale(),
            connect_timeout_seconds=operation * time_scale(),
            margin_seconds=session * time_scale() / 10,
        )
        backend = EmbeddedBackend(
            context, EmbeddedSettings(**({"directory": directory} | settings))
        )
        opened.append(backend)
        return backend

    yield opener
    for backend in opened:
        backend.close()


@pytest.fixture
def open_client(directory: Path) -> Iterator[OpenClient]:
    store = {"plugin.backend": "embedded", "plugin.embedded.directory": str(directory)}
    with ExitStack() as clients:

        def open_one(**more: Written) -> PluginLocator:
            return clients.enter_context(PluginLocator().startup({**store, **more}))

        yield open_one


@pytest.fixture
def backend(open_backend: Open) -> EmbeddedBackend:
    return open_backend()


@pytest.fixture
def start_child(directory: Path) -> Iterator[Callable[..., Child]]:
    started: list[Child] = []

    def start(*words: str) -> Child:
        started.append(Child(directory, *words))
        return started[-1]

    yield start
    for child in started:
        child.kill()


@pytest.fixture
def eventually() -> Callable[..., None]:
    def wait(condition: Callable[[], object], seconds: float = 5) -> None:
        deadline = time.monotonic() + seconds * time_scale()
        while not condition():
            assert time.monotonic() < deadline, "did not happen in time"
            time.sleep(0.002)

    return wait


@pytest.fixture
def in_child() -> Callable[..., int]:
    return run_in_child


@pytest.fixture
def umask() -> Callable[[int], Any]:
    @contextmanager
    def under(mask: int) -> Generator[None]:
        before = os.umask(mask)
        try:
            yield
        finally:
            os.umask(before)

    return under
