from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30_conformance.clients.members import MemberFactory

OpenClient = Callable[..., PluginLocator]


@pytest.fixture
def open_client(tmp_path: Path) -> Iterator[OpenClient]:
    with ExitStack() as clients:

        def open_one(**more: Written) -> PluginLocator:
            properties: dict[str, Written] = {
                "plugin.backend": "embedded",
                "plugin.embedded.directory": tmp_path / "state",
                "plugin.session.timeout.ms": 1000,
                "plugin.operation.timeout.ms": 1000,
                **more,
            }
            return clients.enter_context(PluginLocator().startup(properties))

        yield open_one


@pytest.fixture
def client(open_client: OpenClient) -> PluginLocator:
    return open_client()


@pytest.fixture
def members() -> Iterator[MemberFactory]:
    with ExitStack() as ends:
        yield MemberFactory(ends)
