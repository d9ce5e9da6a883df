"""A real limit on processes, reached for a while."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kip30.config import Written
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble

from .process_limit_client import SESSION_SECONDS

needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root can become a user that has no process"
)
_CLIENT = Path(__file__).with_name("process_limit_client.py")
_SECONDS = 80


def expect_recovery(settings: Mapping[str, Written]) -> None:
    """Use the store of *settings* as a user who has no thread to spare for a while, and after."""
    # Longer than workers idle: each look at a lease keeps one of them.
    session = {"plugin.session.timeout.ms": round(1000 * SESSION_SECONDS * time_scale())}
    properties = {"plugin.namespace": "crowded", **session, **settings}
    request = {"properties": {key: str(value) for key, value in properties.items()}}
    done = subprocess.run(
        [sys.executable, _CLIENT],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=_SECONDS * time_scale(),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "cannot start a thread" in done.stderr or json.loads(done.stdout)["refused"]


@pytest.mark.large
class ProcessLimitCases:
    @needs_root
    @pytest.mark.timeout(300)
    def test_a_crowded_machine_breaks_nothing_for_good(self, ensemble: Ensemble) -> None:
        expect_recovery(ensemble.settings())
