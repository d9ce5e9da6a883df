"""The size of each test: a marker that is added when the test is collected.

*small*: one process, no server, no real waiting; *medium*: processes, or one server of each kind on
this machine; *large*: several nodes, kills over time, crowds, statistics, growth, whole matrices.
A test's folder gives its size, unless a marker of its own does; see CONTRIBUTING.md.
"""

from collections.abc import Iterable
from typing import Any

import pytest

SMALL, MEDIUM, LARGE = "small", "medium", "large"
LIMITS = {SMALL: 1.0, MEDIUM: 10.0}
"""Seconds that a test of a size may take on an idle machine; a large one has no limit."""

STORES = ("zookeeper", "etcd", "consul", "cassandra")
_SMALL_FOLDERS = frozenset({"benchmarks", "coordinator", "core", "history", "kit", "pipeline"})


def others_large(values: Iterable[Any]) -> list[Any]:
    """Return parameters that make a test large, except for the first, which the gate runs.

    A tuple has the values of several arguments.
    """
    first, *others = values
    rows = (value if isinstance(value, tuple) else (value,) for value in others)
    return [first, *(pytest.param(*row, marks=pytest.mark.large) for row in rows)]


def size_of(item: pytest.Item) -> str:
    """Return the size of *item*: the one that it is marked with, else that of its folder."""
    if is_crowd(item) or nodes_of(item) == 3:
        return LARGE
    names = _markers(item)
    if names & {SMALL, MEDIUM}:
        return MEDIUM if MEDIUM in names else SMALL
    parts = _parts(item)
    return SMALL if "unit" in parts and parts[-2] in _SMALL_FOLDERS else MEDIUM


def is_crowd(item: pytest.Item) -> bool:
    """Return whether *item* is marked as large, on any number of servers."""
    # The suites know levels instead of sizes: `heavy` is that of crowds and repetitions.
    return bool({LARGE, "heavy"} & _markers(item))


def nodes_of(item: pytest.Item) -> int:
    """Return the number of servers that *item* starts together."""
    ids = item.name.partition("[")[2]
    if is_of_suite(item):
        return 3 if "nodes-3" in ids else 1
    return 3 if needs_three(item) or "-3]" in ids or "nodes=3" in ids else 1


def needs_three(item: pytest.Item) -> bool:
    """Return whether *item* is about three servers."""
    return "three" in getattr(item, "fixturenames", ())


def freezes(item: pytest.Item) -> bool:
    """Return whether *item* stops the servers of all clients, and so needs some of its own."""
    return "freeze" in getattr(item, "fixturenames", ())


def is_of_suite(item: pytest.Item) -> bool:
    """Return whether *item* is of the conformance suite."""
    return _is_in(item, "conformance")


def is_of_pipeline(item: pytest.Item) -> bool:
    """Return whether *item* runs jobs of the pipeline."""
    return _is_in(item, "pipeline")


def store_of(item: pytest.Item) -> str | None:
    """Return the store whose servers *item* uses, by the place of its file."""
    *_, folder, file = _parts(item)
    names = folder, file.removeprefix("test_").removesuffix(".py")
    return next((store for store in STORES if store in names), None)


def _markers(item: pytest.Item) -> set[str]:
    return {marker.name for marker in item.iter_markers()}


def _is_in(item: pytest.Item, folder: str) -> bool:
    """Return whether *item* is in the *folder* below `tests`, and not in that of unit tests."""
    parts = _parts(item)
    return parts[-2] == folder and "unit" not in parts


def _parts(item: pytest.Item) -> tuple[str, ...]:
    return item.path.parts  # all tests of a file have one path, which keeps its parts
