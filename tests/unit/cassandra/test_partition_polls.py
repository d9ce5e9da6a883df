"""Polls of partitions whose nodes do not agree yet, or that vanish between two polls."""

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from kip30.driver.kit.futures import Completed
from kip30.driver.kit.timer import Timer
from kip30.driver.records import Entry, Kind, Snapshot, Target, Version
from kip30_backends.cassandra.partition_queue import ConcurrencyLimit
from kip30_backends.cassandra.target_states import Revision
from kip30_backends.cassandra.watch import NamespacePoll, PollTiming
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.polling import eventually
from tests.unit.clients import Open

from .admin import Admin

OLD, NEW = Entry(Version(9), "one", b"old"), Entry(Version(10), "other", b"new")


class Divided:
    """Stands in for `TargetStates`: all nodes have the newest revision, few the write behind it."""

    def __init__(self) -> None:
        self.looks = list[bool]()
        self.orders = itertools.count()

    last_stamp = 10**9  # so each poll delivers the known state again

    @contextmanager
    def looking(self, _targets: object) -> Iterator[int]:
        yield next(self.orders)

    def accept(self, *_: object) -> bool:
        return True

    def revision(self, _namespace: str, **_: object) -> Future[Revision]:
        return Completed(Revision(10, "10"))

    def records(self, *_: object, surely: bool = False) -> Future[dict[str, Entry]]:
        self.looks.append(surely)
        return Completed({"k": NEW if any(self.looks) else OLD})


class Watcher:
    """Records the last state that it receives."""

    def __init__(self) -> None:
        self.target = Target(Kind.VALUE, "n", "k")
        self.told: Snapshot | None = None
        self.looked = threading.Semaphore(0)

    def take(self, snapshot: Snapshot) -> bool:
        self.told = snapshot
        self.looked.release()
        return True

    def last_state(self) -> Snapshot | None:
        return self.told


@pytest.fixture
def timer() -> Iterator[Timer]:
    one = Timer("test-looks")
    yield one
    one.stop()


def test_a_watcher_gets_the_last_write_although_its_revision_was_seen(timer: Timer) -> None:
    states: Any = Divided()
    watcher = Watcher()
    poll = NamespacePoll("n", states, PollTiming(timer, ConcurrencyLimit(1), 0.001))
    poll.add(watcher)
    eventually(lambda: watcher.told and watcher.told.entries["k"] == NEW, what="the new one")
    for _ in range(10):
        assert watcher.looked.acquire(timeout=10)
    poll.remove(watcher)
    assert states.looks == [False, True]


@pytest.mark.parametrize("target", [Target(Kind.NAMESPACE, "n"), Target(Kind.VALUE, "n", "k")])
def test_a_partition_that_has_its_first_mark_again(
    open_client: Open, admin: Admin, namespace: str, target: Target
) -> None:
    received = Recorder[Snapshot]()
    client = open_client(**{"plugin.cassandra.lr.pull.period.ms": "8000"})
    watch = client.backend.observe.watch(target, received)
    eventually(lambda: received.events, what="the absent partition")
    client.storage().put("n/k", "v")
    eventually(lambda: "k" in received.events[-1].entries, within=20, what="what was put")
    where = "WHERE root = %s AND namespace = 'n'"  # done before the next poll, a second later
    admin.tell(f"DELETE FROM kip30.records {where}", namespace)  # noqa: S608  no input
    eventually(lambda: "k" not in received.events[-1].entries, within=20, what="its removal")
    watch.close()
