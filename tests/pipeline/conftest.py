"""Fixtures of the pipeline's tests: a session of Spark, and one ensemble of each store."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from kip30 import PluginLocator
from kip30.config import Written
from kip30.pipeline.spark.session import open_session
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import STORES, Ensemble
from kip30_conformance.servers.needing import needed
from tests.unit.clients import unused_namespace

_FOR_TESTS = {
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield the session that all tests of the process use."""
    session = open_session("local[2]", conf=_FOR_TESTS)
    yield session
    session.stop()


class Target(NamedTuple):
    """A namespace of a store that nothing else uses.

    Attributes:
        properties: The configuration that opens it.
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
        "plugin.session.timeout.ms": round(10_000 * time_scale()),
        "plugin.operation.timeout.ms": round(5_000 * time_scale()),
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
