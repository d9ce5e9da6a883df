"""The thread that the open stores of one process share: whom it serves, whom it leaves alone."""

import gc
import os
import threading
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kip30.driver.records import Condition, Kind, Snapshot, Target, Write
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, watch_thread
from kip30_backends.embedded.liveness import LivenessCheck
from kip30_backends.embedded.target_states import TargetStates
from tests.embedded_faults import faults_of

THREAD = "kip30-embedded"


def put(backend: EmbeddedBackend, name: str, data: bytes) -> None:
    backend.storage.write(Write(Key("ns", name), "n", data, Condition.ANY)).result()


class Listener:
    """Watches one key by a backend of its own."""

    def __init__(self, backend: EmbeddedBackend, name: str) -> None:
        self.backend = backend
        self.name = name
        self.seen: list[Snapshot] = []
        self.watch = backend.observe.watch(Target(Kind.VALUE, "ns", name), self.seen.append)

    def has(self, data: bytes) -> bool:
        entry = self.seen[-1].entries.get(self.name) if self.seen else None
        return entry is not None and entry.data == data


def listeners(open_backend: Any, count: int, **settings: Any) -> list[Listener]:
    return [Listener(open_backend(**settings), str(number)) for number in range(count)]


def threads() -> int:
    return [thread.name for thread in threading.enumerate()].count(THREAD)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[TargetStates]:
    """Count the reads of states of watched targets."""
    counted: Counter[TargetStates] = Counter()
    real = TargetStates.news

    def news(states: TargetStates, *arguments: Any) -> Any:
        counted[states] += 1
        return real(states, *arguments)

    monkeypatch.setattr(TargetStates, "news", news)
    return counted


@pytest.mark.parametrize("notify", ["inotify", "poll"])
def test_a_change_is_read_only_by_the_stores_that_watch_it(
    open_backend: Any, eventually: Any, reads: Counter[TargetStates], notify: str
) -> None:
    writer = open_backend()
    heard = listeners(open_backend, 50, notify=notify)
    eventually(lambda: all(one.seen for one in heard))
    assert threads() == 1
    reads.clear()
    for number in range(20):
        put(writer, "7", str(number).encode())
        eventually(lambda number=number: heard[7].has(str(number).encode()))
    put(writer, "of no listener", b"")
    put(writer, "8", b"last")
    eventually(lambda: heard[8].has(b"last"))
    assert set(reads) == {one.backend._resources.states for one in heard[7:9]}
    assert len(heard[0].seen) == 1


def test_one_check_of_liveness_serves_all(
    open_backend: Any, start_child: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: set[LivenessCheck] = set()
    real = LivenessCheck.look

    def look(check: LivenessCheck, *arguments: Any) -> None:
        checks.add(check)
        real(check, *arguments)

    monkeypatch.setattr(LivenessCheck, "look", look)
    backends = [open_backend() for _ in range(3)]
    seen: list[list[Snapshot]] = [[] for _ in backends]
    for backend, states in zip(backends, seen, strict=True):
        backend.observe.watch(Target(Kind.SERVICE, "s"), states.append)
    child = start_child("auto", "60", "lead", "s", "them")
    assert child.line() == "leads 1"
    eventually(lambda: all(states and states[-1].entries for states in seen))
    assert len(checks) == 1
    # Another one takes over when the store that checks is closed.
    next(one for one in backends if one._resources.watches is watches_of(checks)).close()
    child.kill()
    eventually(lambda: sum(not states[-1].entries for states in seen) == 2)
    assert len(checks) == 2


def watches_of(checks: set[LivenessCheck]) -> object:
    (check,) = checks
    clients = [one for thread in watch_thread._threads.values() for one in thread.clients]
    return next(one.store.watches for one in clients if one.store.liveness_check is check)


def test_a_store_that_closes_leaves_the_others_served(open_backend: Any, eventually: Any) -> None:
    heard = listeners(open_backend, 4)
    eventually(lambda: all(one.seen for one in heard))
    for number in range(3):  # first the one that started the thread
        heard[number].backend.close()
        put(heard[3].backend, "3", str(number).encode())
        eventually(lambda number=number: heard[3].has(str(number).encode()))
    heard[3].backend.close()
    assert threads() == 0
    assert not watch_thread._threads


def test_a_sink_may_close_any_store(open_backend: Any, eventually: Any) -> None:
    heard = listeners(open_backend, 3)
    eventually(lambda: all(one.seen for one in heard))
    closer = open_backend()
    closed = threading.Event()

    def close(snapshot: Snapshot) -> None:
        if snapshot.entries:
            heard[0].backend.close()
            closer.close()
            closed.set()

    closer.observe.watch(Target(Kind.VALUE, "ns", "close"), close)
    put(heard[1].backend, "close", b"")
    assert closed.wait(20)
    put(heard[1].backend, "1", b"after")
    eventually(lambda: heard[1].has(b"after"))


def test_closing_waits_for_the_sink_of_that_store_alone(open_backend: Any, eventually: Any) -> None:
    entered, go = threading.Event(), threading.Event()
    idle, busy = open_backend(), open_backend()
    quiet = Listener(idle, "quiet")
    eventually(lambda: quiet.seen)

    def slow(_: Snapshot) -> None:
        entered.set()
        go.wait(60)

    busy.observe.watch(Target(Kind.VALUE, "ns", "slow"), slow)
    assert entered.wait(20)
    idle.close()
    closing = threading.Thread(target=busy.close)
    closing.start()
    closing.join(0.1)
    assert closing.is_alive()
    go.set()
    closing.join(20)
    assert not closing.is_alive()


def test_a_paused_store_gets_missed_changes_that_others_have_read(
    open_backend: Any, eventually: Any
) -> None:
    heard = listeners(open_backend, 2)
    faults_of(heard[0].backend)
    eventually(lambda: all(one.seen for one in heard))
    faults_of(heard[0].backend).watches_paused = True
    put(heard[1].backend, "0", b"missed")
    for number in range(5):
        put(heard[1].backend, "1", str(number).encode())
        eventually(lambda number=number: heard[1].has(str(number).encode()))
    assert not heard[0].has(b"missed")
    faults_of(heard[0].backend).watches_paused = False
    eventually(lambda: heard[0].has(b"missed"))


def test_more_changes_than_are_logged_reach_each_store(open_backend: Any, eventually: Any) -> None:
    heard = listeners(open_backend, 3)
    eventually(lambda: all(one.seen for one in heard))
    with threads_of(heard[0].backend).clients[0].lock:  # the thread reads nothing meanwhile
        for one in heard:
            put(one.backend, one.name, b"early")
        others = [Write(Key("x", str(n)), "n", b"", Condition.ANY) for n in range(10_000)]
        for future in heard[0].backend.storage.write_many(others):
            assert future.exception() is None
    eventually(lambda: all(one.has(b"early") for one in heard))


def threads_of(backend: EmbeddedBackend) -> watch_thread.WatchThread:
    return backend._resources.watch_thread._thread


def test_a_later_watch_has_its_first_state_although_nothing_has_changed(
    open_backend: Any, eventually: Any
) -> None:
    heard = listeners(open_backend, 3)
    eventually(lambda: all(one.seen for one in heard))
    later = Listener(heard[1].backend, "later")
    eventually(lambda: later.seen)


def test_namespaces_of_one_file_share_the_thread_and_no_changes(
    open_backend: Any, eventually: Any, reads: Counter[TargetStates]
) -> None:
    one, other = (Listener(open_backend(namespace=name), "key") for name in ("one", "other"))
    eventually(lambda: one.seen and other.seen)
    assert threads() == 1
    reads.clear()
    put(one.backend, "key", b"1")
    eventually(lambda: one.has(b"1"))
    assert set(reads) == {one.backend._resources.states}


def test_a_new_file_at_the_same_place_has_a_thread_of_its_own(
    open_backend: Any, directory: Path, eventually: Any
) -> None:
    old = Listener(open_backend(), "key")
    eventually(lambda: old.seen)
    for file in directory.glob("kip30.db*"):
        file.unlink()
    new = listeners(open_backend, 2)
    eventually(lambda: all(one.seen for one in new))
    assert threads_of(old.backend) is not threads_of(new[0].backend)
    put(new[0].backend, "1", b"1")
    eventually(lambda: new[1].has(b"1"))


def test_a_store_that_is_garbage_is_closed_while_the_thread_serves_others(
    open_backend: Any, directory: Path, eventually: Any
) -> None:
    other = Listener(open_backend(), "key")
    eventually(lambda: other.seen)
    dropped = EmbeddedBackend(other.backend._resources.sessions._context, other.backend._settings)
    dropped.membership.claim("g", "m", "n", b"").result()
    gone = weakref.ref(dropped)
    del dropped
    gc.collect()
    assert gone() is None
    group = Target(Kind.GROUP, "g")
    eventually(lambda: not other.backend.observe.snapshot(group).result().entries)
    eventually(lambda: len(threads_of(other.backend).clients) == 1)
    assert directory.exists()


def test_a_forked_child_has_a_thread_of_its_own(
    open_backend: Any, in_child: Any, eventually: Any
) -> None:
    heard = listeners(open_backend, 3)
    eventually(lambda: all(one.seen for one in heard))

    def works_here() -> bool:
        assert not watch_thread._threads
        assert threads() == 0
        own = listeners(open_backend, 2)
        put(own[0].backend, "1", b"from the child")
        eventually(lambda: own[1].has(b"from the child"))
        assert [key.pid for key in watch_thread._threads] == [os.getpid()]
        for one in own:
            one.backend.close()
        return threads() == 0

    assert in_child(works_here) == 0
    eventually(lambda: heard[1].has(b"from the child"))
    put(heard[0].backend, "2", b"from the parent")
    eventually(lambda: heard[2].has(b"from the parent"))
