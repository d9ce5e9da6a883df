from collections.abc import Generator

import pytest

from kip30_conformance.plugin import is_proven


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call" and report.passed and not is_proven(item):
        report.outcome = "failed"
        report.longrepr = "no evidence that the fault happened"
    return report
