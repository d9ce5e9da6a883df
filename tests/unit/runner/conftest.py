from collections.abc import Generator
from pathlib import Path

import pytest

from kip30_conformance.clients.default_signals import heeded

from .field import Field


@pytest.fixture(autouse=True)
def heeded_signals() -> Generator[None]:
    with heeded():
        yield


@pytest.fixture
def field(tmp_path: Path) -> Generator[Field]:
    field = Field(tmp_path)
    yield field
    field.close()
