"""For tests that need servers which may not be installed."""

import os
from typing import Any

import pytest

from kip30_conformance.servers.ensemble import Ensemble
from kip30_conformance.servers.installed import ServerMissingError
from kip30_conformance.servers.starting import start

_REQUIRED_BY = ("CI", "KIP30_REQUIRE_SERVERS")


def needed(name: str, nodes: int = 1, **options: Any) -> Ensemble:
    """Return the result of `start`; without the server skip the test, unless that is forbidden.

    It is forbidden, and the test fails, where ``CI`` or ``KIP30_REQUIRE_SERVERS`` is set.
    """
    try:
        return start(name, nodes, **options)
    except ServerMissingError as error:
        if any(map(os.environ.get, _REQUIRED_BY)):
            raise
        pytest.skip(str(error))
