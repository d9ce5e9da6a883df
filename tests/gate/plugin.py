"""The project's part in pytest: sizes of tests, and deadlines by the machine."""

import time
from collections.abc import Generator
from typing import Any

import pytest

from kip30_conformance.polling import raise_time_scale, time_scale

from .machine_speed import measured_time_scale
from .outcomes import SAFETY
from .selection import convicts, is_in_gate
from .sizes import LIMITS, size_of

_INTERVAL_SECONDS = 60.0
_SHARED = "time_scale"


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


class Deadlines:
    """Measures the factor for deadlines, and applies it to the time that a test has to end."""

    def __init__(self, config: pytest.Config) -> None:
        """Measure once, before anything is scaled."""
        self._default = float(config.getini("timeout") or 0)
        self._measured = 0.0
        self._measure()

    # A wrapper, because pytest-timeout reads the limit in one.
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure again if the last time is a minute ago; then limit the time of *item*."""
        if time.monotonic() > self._measured + _INTERVAL_SECONDS:
            self._measure()
        marker = item.get_closest_marker("timeout")
        seconds = float(marker.args[0]) if marker is not None else self._default
        item.add_marker(pytest.mark.timeout(seconds * time_scale()), append=False)
        return (yield)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """In a worker of xdist, pass its factor on to the process that began the run."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_SHARED] = time_scale()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over the factor of a worker."""
        raise_time_scale(getattr(node, "workeroutput", {}).get(_SHARED, 0.0))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the factor at the end."""
        terminalreporter.line(f"time scale: {time_scale():.1f}")

    def _measure(self) -> None:
        raise_time_scale(measured_time_scale())
        self._measured = time.monotonic()
