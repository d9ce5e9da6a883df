from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30_conformance.clients.default_signals import heeded

from .shell import Shell


@pytest.fixture(autouse=True)
def heeded_signals() -> Iterator[None]:
    with heeded():
        yield


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KIP30_DEBUG", raising=False)
    made = Shell(tmp_path)
    monkeypatch.setenv("KIP30_CONFIG", str(made.properties))
    return made
