"""A pytest plugin: a check that failed on servers is shown with the end of their logs."""

from collections.abc import Generator

import pytest

from kip30_conformance.server_harness import ServerHarness
from kip30_conformance.servers.ensemble import Ensemble


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the logs of every ensemble that the check had."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, ensemble in _ensembles(item):
            report.sections.append((f"servers of {name}", ensemble.log_tails()))
    return report


def _ensembles(item: pytest.Function) -> Generator[tuple[str, Ensemble]]:
    for name, value in item.funcargs.items():
        found = value.ensemble if isinstance(value, ServerHarness) else value
        if isinstance(found, Ensemble):
            yield name, found
