import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

import kip30
import kip30_backends
import kip30_conformance
from kip30_conformance.deadlines import Deadlines
from kip30_conformance.polling import time_scale
from kip30_conformance.servers import Ensemble

from .gate.outcomes import Outcomes
from .gate.plugin import FrozenTests, Sizes
from .gate.scheduling import Scheduling
from .shared_servers import SharedServers, shared_servers

pytest_plugins = ["kip30_conformance.simulation.virtual_time"]

ROOT = Path(__file__).parents[1]

# A shell has what it starts in the background ignore Ctrl-C, and the runners under test inherit it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# An example takes as long as the machine lets it.
settings.register_profile("kip30", deadline=None)
settings.load_profile("kip30")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcomes", type=Path, help="write to this file how the tests ended")
    parser.addini("deadlines", "what scales them: the machine, or $KIP30_TIME_SCALE alone")


def pytest_configure(config: pytest.Config) -> None:
    _refuse_mixture()
    config.pluginmanager.register(FrozenTests())
    config.pluginmanager.register(Sizes())
    config.pluginmanager.register(Scheduling())
    config.pluginmanager.register(SharedServers(config))
    if config.getini("deadlines") != "given":
        config.pluginmanager.register(Deadlines(config))
    file, is_worker = config.getoption("outcomes"), hasattr(config, "workerinput")
    if file is not None and not is_worker:
        config.pluginmanager.register(Outcomes(file, time_scale))


@pytest.fixture(scope="session")
def shared_server(pytestconfig: pytest.Config) -> Iterator[Callable[[str], Ensemble]]:
    """Yield what returns the shared server of a store, by its name."""
    with shared_servers(pytestconfig) as server:
        yield server


def _refuse_mixture() -> None:
    """Refuse packages of which one is the checkout's and another an installed one.

    Raises:
        pytest.UsageError: That is so.
    """
    sources = {ROOT / "kip30", ROOT / "backends", ROOT / "conformance"}
    here = {
        package.__name__: not sources.isdisjoint(Path(str(package.__file__)).parents)
        for package in (kip30, kip30_backends, kip30_conformance)
    }
    if len(set(here.values())) > 1:
        names = ", ".join(name for name, is_here in here.items() if is_here)
        raise pytest.UsageError(
            f"{names} would be the checkout's, the rest of kip30 an installed one: install with"
            " `pip install --editable`, or set PYTHONSAFEPATH=1 to test what is installed"
        )
