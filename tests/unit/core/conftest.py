from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30.driver.clock import Clock

OpenClient = Callable[..., PluginLocator]


@pytest.fixture
def open_client(tmp_path: Path) -> Iterator[OpenClient]:
    with ExitStack() as clients:

        def open_one(clock: Clock | None = None, **more: Written) -> PluginLocator:
            properties: dict[str, Written] = {
                "plugin.backend": "embedded",
                "plugin.embedded.directory": tmp_path / "state",
                "plugin.session.timeout.ms": 2000,
                "plugin.operation.timeout.ms": 1500,
                **more,
            }
            return clients.enter_context(PluginLocator(clock=clock).startup(properties))

        yield open_one


@pytest.fixture
def client(open_client: OpenClient) -> PluginLocator:
    return open_client()
