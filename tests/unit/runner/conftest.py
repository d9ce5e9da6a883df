from collections.abc import Generator
from pathlib import Path

import pytest

from .field import Field


@pytest.fixture
def field(tmp_path: Path) -> Generator[Field]:
    field = Field(tmp_path)
    yield field
    field.close()
