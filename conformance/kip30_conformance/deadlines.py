"""Deadlines by the speed of the machine, in a run of pytest."""

import time
from collections.abc import Generator
from typing import Any

import pytest

from kip30_conformance.machine_speed import measured_time_scale
from kip30_conformance.polling import raise_time_scale, time_scale

_INTERVAL_SECONDS = 60.0
_SHARED = "time_scale"


class Deadlines:
    """Measures the factor for deadlines, and applies it to the time that a test has to end.

    That time is the ini option ``timeout`` of pytest-timeout, or the marker of a test.
    """

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
