"""Distribution of tests among processes of xdist: tests that run together, and that run first.

A module with servers of its own starts them once, if all its tests are in one process. The
slowest tests go first, so that the processes end together. For ``--dist loadscope
--no-loadscope-reorder``.
"""

from pathlib import PurePath
from typing import Any

import pytest
from typing_extensions import override
from xdist.scheduler import LoadScopeScheduling

from kip30_conformance.all_suites import suite_classes
from kip30_conformance.server_suite import ServerSuite

from .selection import WITNESS

# The suites whose checks start servers of their own; those of `WITNESS` start fast.
_SERVER_SUITES = {name for name, suite in suite_classes().items() if issubclass(suite, ServerSuite)}
SLOWEST_FIRST = (
    "tests/unit/cassandra",
    "tests/conformance/test_cassandra.py",
    "tests/servers",
    "tests/unit/zookeeper",
    f"tests/conformance/test_{WITNESS}.py",
)


ALONE = "tests/test_pipeline_bites.py"
"""A file whose tests share nothing: each of them starts processes and servers of its own."""


class ByServer(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Gives a process a test file, a suite of the contract on one store, or a test of `ALONE`."""

    @override
    def _split_scope(self, nodeid: str) -> str:
        file, _, name = nodeid.partition("::")
        if file == ALONE:
            return nodeid
        path = PurePath(file)
        if path.parent.name != "conformance":
            return file
        suite = name.partition("::")[0]
        if suite in _SERVER_SUITES and path.stem != f"test_{WITNESS}":
            return f"{file}::servers"
        return f"{file}::{suite}"


class Scheduling:
    """Sorts the tests, and makes xdist distribute them with `ByServer`."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put the slowest stores first."""
        items.sort(key=lambda item: _place(item.nodeid))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> ByServer | None:
        """Return the scheduler of ``--dist loadscope``."""
        return ByServer(config, log) if config.getoption("dist") == "loadscope" else None


def _place(nodeid: str) -> int:
    begins = (place for place, path in enumerate(SLOWEST_FIRST) if nodeid.startswith(path))
    return next(begins, len(SLOWEST_FIRST))
