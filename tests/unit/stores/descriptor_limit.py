"""A process with few file descriptors left, or none: errors that name the limit, and no abort."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kip30.config import Written
from kip30_conformance.servers import Ensemble
from tests.unit.clients import PATIENT

CLIENT = Path(__file__).with_name("descriptor_limit_client.py")


def expect_named_limit(settings: Mapping[str, Written]) -> None:
    """Open the store of *settings* with 0, 1, 2 ... descriptors left, and as usual after that."""
    properties = {"plugin.namespace": "crowded", **settings}
    done = subprocess.run(
        [sys.executable, CLIENT],
        input=json.dumps({key: str(value) for key, value in properties.items()}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    refusals = done.stdout.splitlines()
    assert "too few file descriptors left of its 64: raise `ulimit -n`" in refusals[0]
    assert not any("check owner" in one for one in refusals)


@pytest.mark.medium
class DescriptorLimitCases:
    def test_a_lack_of_descriptors_is_named_and_ends_no_process(self, ensemble: Ensemble) -> None:
        expect_named_limit({**ensemble.settings(), **PATIENT})
