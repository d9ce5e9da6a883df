"""Consul against the conformance suite, on one server and on three."""

import pytest

from kip30_conformance.all_suites import suite_classes


@pytest.fixture(scope="module")
def store() -> str:
    return "consul"


globals().update(suite_classes())
