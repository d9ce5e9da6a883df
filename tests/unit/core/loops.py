"""Event loops for the core's tests."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from kip30.aio import AsyncGroupMembership, AsyncPluginLocator
from kip30.config import Written
from kip30_conformance.polling import time_scale
from tests import embedded_faults
from tests.embedded_faults import EmbeddedFaults

PATIENCE = 20


def properties(tmp_path: Path, **more: Written) -> dict[str, Written]:
    return {
        "plugin.backend": "embedded",
        "plugin.embedded.directory": tmp_path / "state",
        "plugin.session.timeout.ms": 2000,
        "plugin.operation.timeout.ms": 1500,
        **more,
    }


def faults_of(locator: AsyncPluginLocator) -> EmbeddedFaults:
    """Return the faults of *locator*, which uses the embedded store."""
    return embedded_faults.faults_of(locator.backend)


def occupy(locator: AsyncPluginLocator, gate: threading.Event) -> None:
    """Keep all workers of *locator* busy until *gate* is set."""
    bridge = locator._bridge
    assert bridge is not None
    for _ in range(20):
        bridge.submit(gate.wait)


def threads() -> Counter[str]:
    return Counter(thread.name for thread in threading.enumerate())


async def until(probe: Callable[[], object], what: str = "") -> None:
    """Poll *probe* without blocking the loop."""
    async with asyncio.timeout(PATIENCE * time_scale()):
        while not probe():  # noqa: ASYNC110  what is polled are threads and other tasks
            await asyncio.sleep(0.005)
    assert probe(), what


async def until_empty(group: AsyncGroupMembership[str]) -> None:
    """Poll *group* until the store has no member of it."""
    async with asyncio.timeout(PATIENCE * time_scale()):
        while await group.membership_list():  # noqa: ASYNC110  the store is polled
            await asyncio.sleep(0.005)
