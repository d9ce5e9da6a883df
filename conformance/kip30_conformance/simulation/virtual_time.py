"""A pytest plugin: tests run unchanged, on simulated threads and under a virtual clock.

    pytest -p kip30_conformance.simulation.virtual_time --virtual-time=all tests

A test that waits for seconds takes milliseconds, and a busy machine makes none of them late. What
does not fit: other processes, real signals, event loops, and threads of libraries in C.
"""

import os
import pkgutil
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple
from zlib import crc32

import pytest
from _pytest.runner import runtestprotocol

from kip30_conformance.polling import scaled_by
from kip30_conformance.simulation.first_thread import FirstThread
from kip30_conformance.simulation.scheduler import Simulation
from kip30_conformance.simulation.stand_ins import installed, late_modules

_VARIABLE = "KIP30_VIRTUAL_TIME"
_CHOICES = _MARKED, _ALL, _NONE = "marked", "all", "none"

_MARKERS = (
    "virtual_time(always=False): runs on simulated threads and under a virtual clock",
    "real_time(reason): does not, although its module or --virtual-time=all says so",
)

_PACKAGES = ("kip30.runtime", "kip30.driver", "kip30.recipes", "kip30_backends.embedded")
"""Imported whole before a test runs: the core imports some of them when it needs them first."""


class _Totals(NamedTuple):
    """The time of all tests.

    Attributes:
        tests: How many there were.
        virtual: Seconds by the virtual clock.
        processor: Seconds of the processor.
        trace: A digest of which thread ran when: the same whenever the same tests run.
    """

    tests: int = 0
    virtual: float = 0.0
    processor: float = 0.0
    trace: int = 0


class VirtualTime:
    """Runs tests in simulations, each in one of its own."""

    def __init__(self, choice: str, seed: int, prefixes: Sequence[str]) -> None:
        """Run the tests of *choice*, all decided by *seed*, with modules that *prefixes* begin."""
        self._choice = choice
        self._seed = seed
        self._prefixes = tuple(prefixes)
        self._totals = _Totals()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Import what tests in virtual time may need."""
        if any(map(self._is_virtual, session.items)):
            _import_all(_PACKAGES)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Run *item* on the first thread of a simulation, if it runs in virtual time."""
        if not self._is_virtual(item):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        simulation = Simulation(self._seed)
        begun = time.process_time()
        # By the virtual clock no machine is slow.
        with scaled_by(1.0), installed(simulation, self._prefixes):
            FirstThread(simulation, partial(_protocol, item, nextitem)).run()
        self._count(simulation, time.process_time() - begun)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report how to repeat a failure; fail a test of which a part ran in real time."""
        if not self._is_virtual(item):
            return (yield)
        if call.when == "setup":
            item.add_report_section("", "virtual time", f"--virtual-time-seed={self._seed}")
        report = yield
        late = late_modules(self._prefixes)
        if call.when == "call" and report.passed and late:
            report.outcome = "failed"
            report.longrepr = (
                f"{', '.join(late)}: imported while the test ran, so in real time; import it at"
                " the top of the test's module"
            )
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the totals."""
        tests, virtual, processor, trace = self._totals
        if tests:
            terminalreporter.write_line(
                f"virtual time: {tests} tests, {virtual:.1f} s in {processor:.1f} s of the"
                f" processor, seed {self._seed}, trace {trace:08x}"
            )

    def _is_virtual(self, item: pytest.Item) -> bool:
        """Return whether *item* runs in virtual time.

        What is marked *always* does so with ``none`` too: it tests what only a simulation has.
        """
        if item.get_closest_marker("real_time"):
            return False
        marker = item.get_closest_marker("virtual_time")
        if self._choice == _NONE:
            return marker is not None and bool(marker.kwargs.get("always"))
        return self._choice == _ALL or marker is not None

    def _count(self, simulation: Simulation, processor: float) -> None:
        before = self._totals
        self._totals = _Totals(
            before.tests + 1,
            before.virtual + simulation.now,
            before.processor + processor,
            crc32(b"%d" % simulation.trace, before.trace),
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption(
        "--virtual-time",
        choices=_CHOICES,
        default=os.environ.get(_VARIABLE, _MARKED),
        help="which tests run on simulated threads and under a virtual clock: those marked"
        f" virtual_time (the default), all, or none; also ${_VARIABLE}",
    )
    parser.addoption(
        "--virtual-time-seed", metavar="SEED", type=int, default=1, help="what decides such a run"
    )
    parser.addini(
        "virtual_time_modules",
        "how the names of modules begin that run in virtual time",
        type="args",
        default=["kip30", "tests", "test_", "conftest"],
    )


def pytest_configure(config: pytest.Config) -> None:
    """Take over the running of tests that run in virtual time."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)
    choice = config.getoption("virtual_time")
    if choice not in _CHOICES:
        raise pytest.UsageError(f"${_VARIABLE} is {choice!r}: it is one of {', '.join(_CHOICES)}")
    seed = int(config.getoption("virtual_time_seed") or 0)
    plugin = VirtualTime(choice, seed, config.getini("virtual_time_modules"))
    config.pluginmanager.register(plugin, "kip30-virtual-time")


def _protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    try:
        runtestprotocol(item, nextitem=nextitem)
    except BaseException:
        # The run of tests ends. pytest would tear down later, when no simulation runs.
        with suppress(Exception):
            state: Any = vars(item.session)["_setupstate"]
            state.teardown_exact(None)
        raise


def _import_all(packages: Sequence[str]) -> None:
    for name in packages:
        package = import_module(name)
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            if found.name not in sys.modules:
                import_module(found.name)
