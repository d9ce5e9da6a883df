"""Clients of a real server of the tests' own."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from types import SimpleNamespace

import grpc
import pytest

from kip30.config import Written
from kip30.driver.scanning import ScanDriver, View
from kip30.runtime.resolution import scanner
from kip30_conformance.servers import Ensemble, start
from tests.unit.clients import PATIENT, Open, opening, unused_namespace

from .admin import Admin
from .scanners import Borrow, OpenScanner


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with start("etcd", folder=tmp_path_factory.mktemp("etcd")) as servers:
        yield servers


@pytest.fixture
def namespace() -> str:
    return unused_namespace()


@pytest.fixture
def open_client(ensemble: Ensemble, namespace: str) -> Iterator[Open]:
    with opening(ensemble, namespace) as open_one:
        yield open_one


@pytest.fixture
def admin(ensemble: Ensemble) -> Admin:
    return Admin(ensemble.nodes[0].address)


@pytest.fixture
def open_scanner(ensemble: Ensemble, namespace: str) -> Iterator[OpenScanner]:
    with ExitStack() as scanners:

        def open_one(view: View | None = None, /, **more: Written) -> ScanDriver:
            config = {**ensemble.settings(), **PATIENT, "plugin.namespace": namespace, **more}
            return scanners.enter_context(scanner(config, view))

        yield open_one


@pytest.fixture
def borrow(ensemble: Ensemble, monkeypatch: pytest.MonkeyPatch) -> Iterator[Borrow]:
    """Yield what makes the properties for the program's own channel with some options."""
    with ExitStack() as channels:

        def settings(options: Sequence[tuple[str, int]]) -> Mapping[str, Written]:
            channel = grpc.insecure_channel(ensemble.nodes[0].address, options=options)
            channels.callback(channel.close)
            client = SimpleNamespace(channel=channel, metadata=None)
            monkeypatch.setattr("json.kip30_lend", lambda: client, raising=False)
            return {"plugin.backend": "etcd", "plugin.etcd.client": "json:kip30_lend"}

        yield settings
