"""The accepted releases: those whose serial reads miss nothing (CASSANDRA-12126)."""

from types import SimpleNamespace

import pytest

from kip30 import StoreError
from kip30_backends.cassandra.schema import check_versions, is_recent

RECENT = ["3.0.24", "3.0.31", "3.11.10", "3.11.19", "4.0.0", "4.0-beta5", "4.1.9", "5.0.6", "6.0"]
OLD = ["2.2.19", "3.0.23", "3.9", "3.10", "3.11.9"]


@pytest.mark.parametrize("version", RECENT)
def test_recent(version: str) -> None:
    assert is_recent(version)


@pytest.mark.parametrize("version", OLD)
def test_old(version: str) -> None:
    assert not is_recent(version)
    nodes = [
        SimpleNamespace(endpoint=f"h:{n}", release_version=v)
        for n, v in enumerate(("5.0.6", version))
    ]
    with pytest.raises(StoreError, match=f"Cassandra {version} at h:1 is too old.*3.11.10"):
        check_versions(nodes)
