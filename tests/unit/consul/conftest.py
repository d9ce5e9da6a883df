"""Clients of a real server of the tests' own."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kip30.config import Written
from kip30.driver.scanning import ScanDriver, View
from kip30.runtime.resolution import scanner
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open, opening, unused_namespace

from .admin import Admin
from .scans import OpenScanner


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("consul", folder=tmp_path_factory.mktemp("consul")) as servers:
        yield servers


@pytest.fixture
def admin(ensemble: Ensemble) -> Admin:
    return Admin(ensemble.nodes[0].port)


@pytest.fixture
def namespace() -> str:
    return unused_namespace()


@pytest.fixture
def open_client(ensemble: Ensemble, namespace: str) -> Iterator[Open]:
    with opening(ensemble, namespace) as open_one:
        yield open_one


@pytest.fixture
def open_scanner(ensemble: Ensemble, namespace: str) -> Iterator[OpenScanner]:
    with ExitStack() as scanners:

        def open_one(view: View | None = None, **more: Written) -> ScanDriver:
            config = {**PATIENT, **ensemble.settings(), "plugin.namespace": namespace, **more}
            return scanners.enter_context(scanner(config, view))

        yield open_one
