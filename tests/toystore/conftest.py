"""Cases that the toy store must fail: strictly expected, so that one that passes is noticed."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite("kip30_conformance")

ONE_PROCESS = "the toy store is one process's memory: no other process shares it"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        here = item.path.parent == Path(__file__).parent
        if here and "peer" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xfail(strict=True, reason=ONE_PROCESS))
