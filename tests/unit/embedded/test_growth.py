"""Cost and latency of an event, which do not grow with the number of records.

The cost is CPU time of the threads that hand states over and make events of them, which no load
distorts much.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from kip30 import GroupMembership, PluginLocator
from kip30.driver.records import Condition, Kind, Snapshot, Target, Write
from kip30.names import Key
from kip30.runtime.subscriptions import Subscription
from kip30_backends.embedded.watch import Watches
from kip30_conformance.polling import eventually, time_scale

pytestmark = pytest.mark.large

EVENTS = 100
ATTEMPTS = 5


class Spent:
    """CPU seconds that the methods under measurement took, on any thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()

    def by(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def measured(*arguments: Any) -> Any:
            begun = time.thread_time()
            try:
                return method(*arguments)
            finally:
                with self._lock:
                    self.seconds += time.thread_time() - begun

        return measured


@pytest.fixture
def spent(monkeypatch: pytest.MonkeyPatch) -> Spent:
    spent = Spent()
    monkeypatch.setattr(Watches, "_deliver_changes", spent.by(Watches._deliver_changes))
    monkeypatch.setattr(Subscription, "_deliver", spent.by(Subscription._deliver))
    # Members watch themselves after a while, which is not to be measured.
    monkeypatch.setattr("kip30.runtime.own_record_watch._SETTLED", 1000)
    return spent


@contextmanager
def opened(directory: Path, **more: str) -> Iterator[PluginLocator]:
    properties = {"plugin.backend": "embedded", "plugin.embedded.directory": str(directory), **more}
    with PluginLocator().startup(properties) as locator:
        yield locator


def of_a_group(locator: PluginLocator, count: int, spent: Spent) -> float:
    """Return what a join or a leave costs a listener of a group with *count* members."""
    heard: list[object] = []
    with locator.group_membership(f"g{count}") as group:
        _join(group, count)
        group.add_listener(heard.append)
        return _measured(spent, heard, lambda n: _come_or_go(group, n))


def _join(group: GroupMembership[str], count: int) -> None:
    for number in range(count):
        group.join(f"m{number:05}", "data")


def _come_or_go(group: GroupMembership[str], number: int) -> None:
    if number % 2:
        group.leave("one more")
    else:
        group.join("one more", "data")


def of_a_key_set(locator: PluginLocator, count: int, spent: Spent) -> float:
    """Return what a put or a deletion costs a listener of *count* keys."""
    heard: list[object] = []
    storage, namespace = locator.storage(), _filled(locator, count)
    locator.listener_registry().add_key_set_change_listener(namespace, heard.append)

    def come_or_go(number: int) -> None:
        if number % 2:
            storage.delete(f"{namespace}/more")
        else:
            storage.put(f"{namespace}/more", "1")

    return _measured(spent, heard, come_or_go)


def of_an_update(locator: PluginLocator, count: int, spent: Spent) -> float:
    """Return what an update of a value costs a listener of *count* keys, which is not called."""
    heard: list[object] = []
    storage, namespace = locator.storage(), _filled(locator, count)
    registry = locator.listener_registry()
    registry.add_key_set_change_listener(namespace, lambda _: heard.append("keys"))
    registry.add_value_change_listener(f"{namespace}/{0:05}", heard.append)
    cost = _measured(spent, heard, lambda _: storage.update(f"{namespace}/{0:05}", "2"))
    assert "keys" not in heard
    return cost


def of_a_value(locator: PluginLocator, count: int, spent: Spent) -> float:
    """Return what an update costs where *count* values of one namespace have listeners."""
    heard: list[object] = []
    storage, namespace = locator.storage(), _filled(locator, count)
    registry = locator.listener_registry()
    for number in range(count):
        registry.add_value_change_listener(f"{namespace}/{number:05}", heard.append)
    return _measured(spent, heard, lambda n: storage.update(f"{namespace}/{n % count:05}", "2"))


def _filled(locator: PluginLocator, count: int) -> str:
    namespace = f"ns{count}-{time.monotonic_ns()}"
    keys = [Key(namespace, f"{number:05}") for number in range(count)]
    writes = [Write(key, "n", b"1", Condition.ANY) for key in keys]
    for answer in locator.backend.storage.write_many(writes):
        answer.result()
    return namespace


def _measured(spent: Spent, heard: list[object], cause: Callable[[int], object]) -> float:
    """Return the CPU seconds of an event; the first ones read whole states, and do not count."""
    for number in range(10 + EVENTS):
        if number == 10:
            spent.seconds = 0.0
        before = len(heard)
        cause(number)
        eventually(partial(_is_longer, heard, before))
    return spent.seconds / EVENTS


@pytest.mark.parametrize(
    ("cost", "few", "many"),
    [
        (of_a_group, 100, 10_000),
        (of_a_key_set, 100, 10_000),
        (of_an_update, 100, 10_000),
        (of_a_value, 10, 1_000),
    ],
)
def test_an_event_costs_what_changed(
    tmp_path: Path, spent: Spent, cost: Callable[..., float], few: int, many: int
) -> None:
    with opened(tmp_path / "state") as locator:
        ratios: list[float] = []
        while not ratios or (min(ratios) > 2 and len(ratios) < ATTEMPTS):
            ratios.append(cost(locator, many, spent) / cost(locator, few, spent))
    assert min(ratios) <= 2


@pytest.mark.parametrize("notify", ["inotify", "poll"])
def test_the_declared_latency_holds_with_a_thousand_targets(open_backend: Any, notify: str) -> None:
    watcher, writer = open_backend(notify=notify, session=30), open_backend(session=30)
    seen: dict[Target, Snapshot] = {}
    keys = [Key("ns", str(number)) for number in range(400)]
    targets = [Target(Kind.VALUE, key.namespace, key.name) for key in keys]
    targets += [Target(Kind.GROUP, str(number)) for number in range(300)]
    targets += [Target(Kind.SERVICE, str(number)) for number in range(300)]
    for target in targets:
        watcher.observe.watch(target, lambda state, target=target: seen.__setitem__(target, state))
    eventually(lambda: len(seen) == len(targets))
    for target in targets[::37]:
        change_begun = time.monotonic()
        order = _change(writer, target)
        eventually(partial(_is_notified, seen, target, order))
        took = time.monotonic() - change_begun
        assert took <= watcher.limits.observe_seconds + 0.3 * time_scale()


def _is_longer(heard: Sized, than: int) -> bool:
    return len(heard) > than


def _is_notified(seen: dict[Target, Snapshot], target: Target, order: int) -> bool:
    return seen[target].order >= order


def _change(writer: Any, target: Target) -> int:
    if target.kind is Kind.VALUE:
        key = Key(target.scope, target.name)
        major: int = writer.storage.write(Write(key, "n", b"", Condition.ANY)).result().major
        return major
    driver = writer.membership if target.kind is Kind.GROUP else writer.election
    order: int = driver.claim(target.scope, "c", "n", b"").result().order
    return order
