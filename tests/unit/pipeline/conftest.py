"""An embedded store of the test's own, and what is asked of it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from tests.unit.core.trouble import faults

from .requests import Requests

OpenClient = Callable[[], PluginLocator]


@pytest.fixture
def open_client(tmp_path: Path) -> Iterator[OpenClient]:
    with ExitStack() as clients:

        def open_one() -> PluginLocator:
            properties: dict[str, Written] = {
                "plugin.backend": "embedded",
                "plugin.embedded.directory": tmp_path / "state",
                "plugin.session.timeout.ms": 20_000,
                "plugin.operation.timeout.ms": 10_000,
            }
            return clients.enter_context(PluginLocator().startup(properties))

        yield open_one


@pytest.fixture
def client(open_client: OpenClient) -> PluginLocator:
    return open_client()


@pytest.fixture
def requests(client: PluginLocator) -> Requests:
    # Faults lie below what counts, so that the requests that they strike are counted too.
    faults(client).fail("storage.read")
    faults(client).clear()
    return Requests(client.backend.storage)
