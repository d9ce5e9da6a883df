"""Cost of one event for a listener, by the size of its target."""

import time
from collections.abc import Callable
from queue import Queue
from typing import Any

from benchmarks.growth.writer import GROWN, key, writing
from benchmarks.processes import Child
from benchmarks.report.figure import middle
from benchmarks.store_address import StoreAddress
from kip30 import PluginLocator

EVENTS = 10
_SETTLE_SECONDS = 0.1
_REST_SECONDS = 1.0
_PATIENCE_SECONDS = 120.0

Heard = Queue[int]
Listen = Callable[[PluginLocator, Callable[[Any], None]], object]


def members(address: StoreAddress, size: int) -> dict[str, float]:
    """Return the cost of a join or leave, and of reading the group once, in ms."""
    return _notified(address, "members", size, _to_group, _reading)


def keys(address: StoreAddress, size: int) -> dict[str, float]:
    return _notified(address, "keys", size, _to_keys, _listing)


def updates(address: StoreAddress, size: int) -> dict[str, float]:
    """Return the CPU that an update costs a listener of keys, which it does not notify."""
    name = f"updates-{size}"
    with writing(address, name, "values", size) as writer, address.open(name) as locator:
        _ready(writer)
        _to_keys(locator, lambda _: None)
        rest = _rest()
        spent = sum(_spent(lambda: _change(writer), rest) for _ in range(EVENTS))
    return {"value update: CPU of a key-set listener": max(spent / EVENTS, 0)}


def registrations(address: StoreAddress, size: int) -> dict[str, float]:
    """Return ms for each of *size* value listeners, and from an update to the callback."""
    name, heard = f"values-{size}", Heard()
    with writing(address, name, "values", size) as writer, address.open(name) as locator:
        _ready(writer)
        add = locator.listener_registry().add_value_change_listener
        began = time.perf_counter()
        for number in range(size):
            add(key(number), lambda _: heard.put(time.monotonic_ns()))
        each = (time.perf_counter() - began) * 1e3 / size
        time.sleep(_REST_SECONDS)
        waits = [_heard(writer, heard) for _ in range(EVENTS)]
    return {"value listeners: registration": each, "value listeners: latency": middle(waits)}


def _notified(
    address: StoreAddress,
    kind: str,
    size: int,
    listen: Listen,
    read: Callable[[PluginLocator], object],
) -> dict[str, float]:
    what = {"members": "join or leave", "keys": "put or delete"}[kind]
    name, heard, waits = f"{kind}-{size}", Heard(), list[float]()
    with writing(address, name, kind, size) as writer, address.open(name) as locator:
        _ready(writer)
        kept = listen(locator, lambda _: heard.put(time.monotonic_ns()))
        rest = _rest()
        cpu = [_spent(lambda: waits.append(_heard(writer, heard)), rest) for _ in range(EVENTS)]
        reading = middle(_spent(lambda: read(locator), 0, 0) for _ in range(3))
        del kept
    spent = max(middle(cpu), 0)
    return {
        f"{what}: CPU of a listener": spent,
        f"{what}: latency": middle(waits),
        f"{what}: CPU over that of reading all": spent / reading if reading else 0,
    }


def _ready(writer: Child) -> None:
    """Wait without a limit: the row has one."""
    assert writer.out.get() is not None, writer.err.get()


def _heard(writer: Child, heard: Heard) -> float:
    """Return ms from the change to the callback."""
    began = _change(writer)
    return (heard.get(timeout=_PATIENCE_SECONDS) - began) / 1e6


def _change(writer: Child) -> int:
    writer.send("change")
    return int(writer.expect("changed")[1])


def _rest() -> float:
    """Return the CPU that passes while nothing happens, in ms per ms."""
    time.sleep(_REST_SECONDS)
    return _spent(lambda: time.sleep(_REST_SECONDS), 0, 0) / (_REST_SECONDS * 1e3)


def _spent(action: Callable[[], object], rest: float, settle: float = _SETTLE_SECONDS) -> float:
    """Return the CPU of this process for *action* in ms, without what a *rest* would take."""
    began, before = time.monotonic_ns(), time.process_time_ns()
    action()
    time.sleep(settle)
    spent, took = time.process_time_ns() - before, time.monotonic_ns() - began
    return (spent - took * rest) / 1e6


def _to_group(locator: PluginLocator, hear: Callable[[Any], None]) -> object:
    group = locator.group_membership(GROWN)
    group.add_listener(hear)
    return group


def _to_keys(locator: PluginLocator, hear: Callable[[Any], None]) -> object:
    registry = locator.listener_registry()
    registry.add_key_set_change_listener(GROWN, hear)
    return registry


def _reading(locator: PluginLocator) -> object:
    return locator.group_membership(GROWN).membership()


def _listing(locator: PluginLocator) -> object:
    return list(locator.storage().list(GROWN))
