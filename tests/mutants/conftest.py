"""Reports the end of each check to `test_suite_bites`: passed, convicted, or an accident."""

import os
from pathlib import Path

import pytest

_ASSERTIONS = (AssertionError, pytest.fail.Exception)


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    if call.when == "call" or call.excinfo is not None:
        with Path(os.environ["KIP30_VERDICTS"]).open("a") as verdicts:
            print(item.nodeid.partition("::")[2], _verdict(call), file=verdicts)


def _verdict(call: pytest.CallInfo[None]) -> str:
    if call.excinfo is None:
        return "passed"
    # Exactly these: a peer that broke down, or a fault that did not happen, is no conviction.
    asserted = call.when == "call" and call.excinfo.type in _ASSERTIONS
    return "convicted" if asserted else f"accident:{call.excinfo.typename}"
