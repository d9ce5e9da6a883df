"""Results of the tests of a run, in a file that the second look reads."""

import json
from collections import defaultdict
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

SAFETY = "safety"
"""The marker of tests whose failure is not looked at twice."""


class Outcomes:
    """Writes the results of the tests of a run to a file, for the second look at failed ones."""

    def __init__(self, file: Path, time_scale: Callable[[], float]) -> None:
        """Write to *file* when the run is over; a run that breaks down leaves no file."""
        self._file = file
        self._time_scale = time_scale
        self._seconds: dict[str, float] = defaultdict(float)
        self._failures: dict[str, str] = {}
        self._passed: set[str] = set()
        self._skipped: set[str] = set()
        self._safety: set[str] = set()
        self._crashes: list[str] = []

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record that a file cannot be collected: the tests that are missing then are unknown."""
        if report.failed:
            self._crashes.append(f"cannot collect {report.nodeid}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the result of one phase of a test."""
        test = report.nodeid
        self._seconds[test] += report.duration
        if SAFETY in report.keywords:
            self._safety.add(test)
        if report.failed:
            self._failures.setdefault(test, str(report.longrepr))
        elif report.skipped:
            self._skipped.add(test)
        elif report.when == "call":
            self._passed.add(test)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        """Record that a process of xdist died."""
        if error:
            self._crashes.append(f"a process of the run died: {error}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None]:
        """Write the file after all else, when the factors of all processes are known."""
        yield
        outcomes = {
            "passed": sorted(self._passed - self._failures.keys()),
            "skipped": len(self._skipped),
            "failed": [
                {
                    "test": test,
                    "seconds": round(self._seconds[test], 3),
                    "safety": test in self._safety,
                    "message": message,
                }
                for test, message in self._failures.items()
            ],
            "crashes": self._crashes,
            "seconds": {test: round(taken, 3) for test, taken in self._seconds.items()},
            "time_scale": round(self._time_scale(), 1),
        }
        self._file.write_text(json.dumps(outcomes))
