"""The project's part in pytest: sizes of tests, and their objects in memory."""

import gc
from collections.abc import Generator

import pytest

from kip30_conformance.polling import time_scale

from .outcomes import SAFETY
from .selection import convicts, is_in_gate
from .sizes import LIMITS, size_of


class Sizes:
    """Marks each test with its size and its place, and names those that took too long."""

    def __init__(self) -> None:
        """Know no durations yet."""
        self._durations: list[tuple[float, str, str]] = []

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Mark *item* with its size, whether the gate holds it, and whether it convicts."""
        size, in_gate = size_of(item), is_in_gate(item)
        item.add_marker(size)
        if in_gate:
            item.add_marker("gate")
        if convicts(item):
            item.add_marker(SAFETY)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep how long a test took that must be short, without what it has set up."""
        size = next((name for name in LIMITS if name in report.keywords), None)
        if report.when == "call" and size is not None:
            self._durations.append((report.duration, size, report.nodeid))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name the tests that took too long for their size, the slowest first."""
        found = [one for one in self._durations if one[0] > LIMITS[one[1]] * time_scale()]
        if found:
            terminalreporter.section("longer than their size allows")
        for seconds, size, test in sorted(found, reverse=True):
            terminalreporter.line(f"{seconds:7.1f} s  {size:6}  {test}")


class FrozenTests:
    """Keeps the garbage collector from the objects of collected tests, none of which is garbage.

    There are some 10,000 tests in each process of a run. Otherwise each full collection in a test
    passes over all of them.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Collect the tests without garbage collections, and freeze them."""
        gc.disable()
        try:
            return (yield)
        finally:
            gc.freeze()
            gc.enable()
