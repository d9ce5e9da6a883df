import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from .shell import Shell


@pytest.fixture(autouse=True)
def heeded_signals() -> Iterator[None]:
    """Have processes heed SIGINT and SIGHUP also if these tests run in the background."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    for number, handler in before.items():
        if handler == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KIP30_DEBUG", raising=False)
    made = Shell(tmp_path)
    monkeypatch.setenv("KIP30_CONFIG", str(made.properties))
    return made
