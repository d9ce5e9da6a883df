"""Cassandra against the conformance suite, on one node and on three."""

import pytest

from kip30_conformance.all_suites import suite_classes


@pytest.fixture(scope="module")
def store() -> str:
    return "cassandra"


globals().update(suite_classes())
