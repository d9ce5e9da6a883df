"""A process that never works is no evidence of what a kill leaves."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from kip30 import PluginLocator
from kip30.config import Written, load
from kip30_conformance.clients.peer import Peer
from kip30_conformance.conform import PropertiesHarness
from kip30_conformance.evidence import Evidence
from kip30_conformance.polling import scaled_by, time_scale
from kip30_conformance.suites.storage_histories import StorageHistoryTests

pytestmark = pytest.mark.medium


class StoppedPeer(Peer):
    """It is stopped before it makes its first call, as on a machine that is busy for long."""

    @override
    def send(self, verb: str, **arguments: Any) -> None:
        if verb == "work":
            self.stop()
        super().send(verb, **arguments)


class StoppedHarness(PropertiesHarness):
    peer_class = StoppedPeer


def test_a_process_that_never_works_before_its_kill_is_no_pass(tmp_path: Path) -> None:
    properties: dict[str, Written] = {
        "plugin.backend": "embedded",
        "plugin.embedded.directory": str(tmp_path / "state"),
    }
    harness, evidence = StoppedHarness(load(properties)), Evidence(lambda *_: None)
    root, history = harness.unique_root(), tmp_path / "history"
    history.mkdir()
    with ExitStack() as opened:

        def open_client(*_: object, **__: object) -> PluginLocator:
            return opened.enter_context(harness.open(root))

        def open_peer(*_: object, **__: object) -> Peer:
            return opened.enter_context(harness.peer(root))

        suite, client, peer = StorageHistoryTests(), open_client, open_peer
        opened.enter_context(scaled_by(time_scale() / 10))
        with pytest.raises(AssertionError, match="the process to be killed makes calls"):
            suite.test_S32_linearizable_register(harness, client, peer, history, evidence)
