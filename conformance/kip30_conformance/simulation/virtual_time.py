"""A pytest plugin: tests run unchanged, on simulated threads and under a virtual clock.

    pytest -p kip30_conformance.simulation.virtual_time --virtual-time=1 tests/unit/core

A test that waits for seconds takes milliseconds, and a busy machine makes none of them late. What
does not fit: other processes, real signals, event loops, and threads of libraries in C.
"""

import pkgutil
import sys
import threading
import time
from collections.abc import Sequence
from importlib import import_module
from math import inf
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from kip30_conformance.simulation.scheduler import Process, Simulation, StuckError
from kip30_conformance.simulation.stand_ins import installed

_PACKAGES = ("kip30.runtime", "kip30.driver", "kip30.recipes", "kip30_backends.embedded")
"""Imported whole before a test runs: a module that is imported later would get no stand-ins."""

_PREFIXES = ("kip30", "tests", "conftest")


class _Totals(NamedTuple):
    """How long tests took: by the virtual clock, and of the processor."""

    virtual: float
    processor: float


class VirtualTime:
    """Runs each test in a simulation of its own."""

    def __init__(self, seed: int) -> None:
        """Decide all of them by *seed*."""
        self._seed = seed
        self._totals = _Totals(0.0, 0.0)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run *item* on the first thread of a simulation."""
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        simulation = Simulation(self._seed)
        simulation.on_failure = _excepthook
        begun = time.process_time()
        with installed(simulation, _PREFIXES):
            _run(simulation, item, nextitem)
        spent = time.process_time() - begun
        self._totals = _Totals(
            self._totals.virtual + simulation.now, self._totals.processor + spent
        )
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the totals."""
        virtual, processor = self._totals
        terminalreporter.write_line(
            f"virtual time: {virtual:.1f} s in {processor:.1f} s of the processor"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--virtual-time",
        metavar="SEED",
        type=int,
        help="run tests on simulated threads and under a virtual clock, decided by SEED",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Take over the running of tests if that is wanted."""
    seed: int | None = config.getoption("virtual_time")
    if seed is not None:
        _import_all(_PACKAGES)
        config.pluginmanager.register(VirtualTime(seed), "kip30-virtual-time")


def _run(simulation: Simulation, item: pytest.Item, nextitem: pytest.Item | None) -> None:
    process = Process(simulation, "test")
    main = simulation.spawn(process, "main", lambda: runtestprotocol(item, nextitem=nextitem))
    while not main.is_done:
        try:
            simulation.run(inf, lambda: main.is_done)
        except StuckError as error:
            simulation.interrupt(main, error)


def _excepthook(error: BaseException) -> None:
    given = (type(error), error, error.__traceback__, None)
    threading.excepthook(threading.ExceptHookArgs(given))


def _import_all(packages: Sequence[str]) -> None:
    for name in packages:
        package = import_module(name)
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            if found.name not in sys.modules:
                import_module(found.name)
