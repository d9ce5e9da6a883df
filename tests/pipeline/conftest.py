"""One ensemble of each store with servers, shared by all tests here, and the embedded store."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from kip30 import PluginLocator
from kip30.config import Written
from kip30_conformance.patience import TIME_SCALE
from kip30_conformance.servers import STORES, Ensemble
from kip30_conformance.servers.needing import needed
from tests.unit.clients import unused_namespace


class Target(NamedTuple):
    """A namespace of a store that nothing else uses.

    Attributes:
        properties: What opens it.
        ensemble: Its servers; None if it is embedded.
        open_client: Opens a client with more properties, which is closed when the test ends.
    """

    properties: dict[str, Written]
    ensemble: Ensemble | None
    open_client: Callable[..., PluginLocator]


@pytest.fixture(scope="package", params=["embedded", *sorted(STORES)])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ensemble | None]:
    if request.param == "embedded":
        yield None
        return
    with needed(request.param, folder=tmp_path_factory.mktemp(request.param)) as ensemble:
        yield ensemble


@pytest.fixture
def target(servers: Ensemble | None, tmp_path: Path) -> Iterator[Target]:
    properties: dict[str, Written] = {
        "plugin.session.timeout.ms": round(10_000 * TIME_SCALE),
        "plugin.operation.timeout.ms": round(5_000 * TIME_SCALE),
        "plugin.namespace": unused_namespace(),
    }
    if servers is None:
        properties |= {"plugin.backend": "embedded", "plugin.embedded.directory": tmp_path / "db"}
    else:
        properties |= servers.settings()
    with ExitStack() as clients:

        def open_client(**more: Written) -> PluginLocator:
            return clients.enter_context(PluginLocator().startup({**properties, **more}))

        yield Target(properties, servers, open_client)
