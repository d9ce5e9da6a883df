"""Hearing of changes: in what order, how soon, and after what went wrong."""

import os
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kip30.driver import Backend, Watch
from kip30.driver.records import Condition, Kind, Snapshot, Target, Write
from kip30.names import Key
from kip30_backends.embedded import EmbeddedBackend, change_signal
from kip30_conformance.polling import time_scale
from tests.embedded_faults import faults_of

KEY = Key("ns", "key")
VALUE = Target(Kind.VALUE, "ns", "key")


def put(backend: Backend, key: Key, data: bytes | None) -> int:
    return backend.storage.write(Write(key, "n", data, Condition.ANY)).result().major


def data_of(seen: list[Snapshot], name: str = "key") -> bytes | None:
    entry = seen[-1].entries.get(name) if seen else None
    return None if entry is None else entry.data


@pytest.mark.parametrize("notify", ["inotify", "poll"])
def test_a_watch_of_each_kind_is_notified_at_the_start_and_after_a_change(
    open_backend: Any, eventually: Any, notify: str
) -> None:
    watcher, writer = open_backend(notify=notify), open_backend()
    targets: dict[Target, Callable[[], object]] = {
        VALUE: lambda: put(writer, KEY, b"1"),
        Target(Kind.NAMESPACE, "ns"): lambda: put(writer, Key("ns", "other"), b"1"),
        Target(Kind.GROUP, "g"): lambda: writer.membership.claim("g", "m", "n", b"").result(),
        Target(Kind.SERVICE, "s"): lambda: writer.election.claim("s", "c", "n", b"").result(),
        Target(Kind.MEMBER, "g", "n"): lambda: writer.membership.claim("g", "n", "n", b"").result(),
    }
    for target, change in targets.items():
        seen: list[Snapshot] = []
        watch = watcher.observe.watch(target, seen.append)
        eventually(lambda seen=seen: seen)
        first = len(seen)
        change()
        eventually(lambda seen=seen, first=first: len(seen) > first)
        read = watcher.observe.snapshot(target).result()
        assert seen[-1].entries == read.entries
        watch.close()


def test_polling_declares_its_latency(open_backend: Any) -> None:
    assert open_backend(notify="poll").limits.observe_seconds == pytest.approx(0.05)
    assert open_backend(notify="inotify").limits.observe_seconds == 0


def test_a_key_recreated_with_the_same_value_is_reported(
    backend: EmbeddedBackend, eventually: Any
) -> None:
    put(backend, KEY, b"same")
    seen: list[Snapshot] = []
    backend.observe.watch(VALUE, seen.append)
    eventually(lambda: seen)
    faults_of(backend).watches_paused = True
    put(backend, KEY, None)
    version = put(backend, KEY, b"same")
    faults_of(backend).watches_paused = False
    eventually(lambda: seen[-1].entries["key"].version.major == version)


def test_several_watches_of_one_target_and_one_that_closes(
    backend: EmbeddedBackend, eventually: Any
) -> None:
    one: list[Snapshot] = []
    two: list[Snapshot] = []
    first = backend.observe.watch(VALUE, one.append)
    backend.observe.watch(VALUE, two.append)
    put(backend, KEY, b"1")
    eventually(lambda: data_of(one) == data_of(two) == b"1")
    first.close()
    put(backend, KEY, b"2")
    eventually(lambda: data_of(two) == b"2")
    assert data_of(one) == b"1"


def test_orders_never_go_back_and_the_last_state_arrives(
    open_backend: Any, eventually: Any
) -> None:
    watcher = open_backend()
    writers = [open_backend() for _ in range(3)]
    seen: list[Snapshot] = []
    watcher.observe.watch(VALUE, seen.append)

    def write(writer: Backend) -> None:
        for number in range(200):
            put(writer, KEY, str(number).encode())

    threads = [threading.Thread(target=write, args=(writer,)) for writer in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = put(watcher, KEY, b"last")
    eventually(lambda: seen[-1].entries["key"].version.major == last)
    orders = [snapshot.order for snapshot in seen]
    assert orders == sorted(set(orders))


def test_a_change_whose_ring_was_lost_is_seen(open_backend: Any, eventually: Any) -> None:
    watcher, writer = open_backend(), open_backend()
    seen: list[Snapshot] = []
    watcher.observe.watch(VALUE, seen.append)
    eventually(lambda: seen)
    writer._resources.database._notify = lambda: None
    put(writer, KEY, b"silent")
    eventually(lambda: data_of(seen) == b"silent", 2)


def test_more_changes_than_are_logged_end_in_the_last_state(
    backend: EmbeddedBackend, eventually: Any
) -> None:
    seen: list[Snapshot] = []
    backend.observe.watch(VALUE, seen.append)
    eventually(lambda: seen)
    faults_of(backend).watches_paused = True
    put(backend, KEY, b"early")
    others = [Write(Key("x", str(n)), "n", b"", Condition.ANY) for n in range(10_000)]
    assert all(future.exception() is None for future in backend.storage.write_many(others))
    count = "SELECT count(*) FROM change"
    logged = backend._resources.database.read(lambda c: c.execute(count).fetchone()[0])
    assert logged < 6000
    faults_of(backend).watches_paused = False
    eventually(lambda: data_of(seen) == b"early")


def test_a_ring_is_heard_long_before_anyone_would_look(open_backend: Any, eventually: Any) -> None:
    watcher, writer = open_backend(notify="inotify"), open_backend()
    told: dict[int, float] = {}

    def note(snapshot: Snapshot) -> None:
        told[snapshot.order] = time.monotonic()

    watcher.observe.watch(VALUE, note)
    delays: list[float] = []
    for number in range(20):
        version = put(writer, KEY, str(number).encode())
        written = time.monotonic()
        eventually(lambda version=version: version in told)
        delays.append(told[version] - written)
    assert statistics.median(delays) < 0.05 * time_scale()


def test_a_raising_sink_harms_no_other(
    backend: EmbeddedBackend, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(_: Snapshot) -> None:
        raise RuntimeError("sink")

    seen: list[Snapshot] = []
    backend.observe.watch(VALUE, bad)
    backend.observe.watch(VALUE, seen.append)
    eventually(lambda: seen)
    put(backend, KEY, b"1")
    eventually(lambda: data_of(seen) == b"1")
    assert "raised" in caplog.text


def _close(_backend: EmbeddedBackend, watch: Watch) -> None:
    watch.close()


def _pause(backend: EmbeddedBackend, _watch: Watch) -> None:
    faults_of(backend).watches_paused = True


@pytest.mark.parametrize("end", [_close, _pause])
def test_the_running_sink_is_waited_for(
    backend: EmbeddedBackend, end: Callable[[EmbeddedBackend, Watch], None]
) -> None:
    entered, go = threading.Event(), threading.Event()

    def slow(_: Snapshot) -> None:
        entered.set()
        go.wait(5)

    faults_of(backend)  # they lie before the watch from its first state on
    watch = backend.observe.watch(VALUE, slow)
    assert entered.wait(5)
    ending = threading.Thread(target=end, args=(backend, watch))
    ending.start()
    ending.join(0.1)
    assert ending.is_alive()
    go.set()
    ending.join(5)
    assert not ending.is_alive()


def test_a_sink_may_close_its_watch(backend: EmbeddedBackend, eventually: Any) -> None:
    watches: list[Watch] = []
    told: list[Snapshot] = []

    def once(snapshot: Snapshot) -> None:
        if watches:
            watches[0].close()
            told.append(snapshot)

    watches.append(backend.observe.watch(VALUE, once))
    put(backend, KEY, b"1")
    eventually(lambda: told)
    put(backend, KEY, b"2")
    seen: list[Snapshot] = []
    backend.observe.watch(VALUE, seen.append)
    eventually(lambda: data_of(seen) == b"2")
    assert len(told) == 1


def test_closing_the_backend_from_a_sink_does_not_hang(
    backend: EmbeddedBackend, eventually: Any
) -> None:
    closed = threading.Event()

    def close(_: Snapshot) -> None:
        backend.close()
        closed.set()

    backend.observe.watch(VALUE, close)
    assert closed.wait(5)
    eventually(lambda: "kip30-embedded" not in {thread.name for thread in threading.enumerate()})


def test_too_many_inotify_sets_fall_back_to_polling(
    backend: EmbeddedBackend, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> int:
        raise OSError(24, os.strerror(24))

    monkeypatch.setattr(change_signal, "start", full)
    seen: list[Snapshot] = []
    backend.observe.watch(VALUE, seen.append)
    put(backend, KEY, b"1")
    eventually(lambda: data_of(seen) == b"1")


def test_watching_a_thousand_targets_takes_one_thread_and_no_time(
    backend: EmbeddedBackend, eventually: Any
) -> None:
    seen: dict[str, Snapshot] = {}
    for number in range(1000):
        name = str(number)
        target = Target(Kind.VALUE, "many", name)
        backend.observe.watch(target, partial(seen.__setitem__, name))
    eventually(lambda: len(seen) == 1000)
    watching = [t for t in threading.enumerate() if t.name == "kip30-embedded"]
    assert len(watching) == 1
    # Its own time: that of the process has what tests before this one have left behind.
    clock = time.pthread_getcpuclockid(watching[0].ident or 0)
    before = time.clock_gettime(clock)
    threading.Event().wait(1)
    assert time.clock_gettime(clock) - before < 0.05
    put(backend, Key("many", "500"), b"1")
    eventually(lambda: seen["500"].entries)
    assert sum(1 for snapshot in seen.values() if snapshot.entries) == 1


def test_the_thread_ends_with_the_last_watch(backend: EmbeddedBackend, eventually: Any) -> None:
    def running() -> bool:
        return "kip30-embedded" in {thread.name for thread in threading.enumerate()}

    for _ in range(3):
        watch = backend.observe.watch(VALUE, lambda _: None)
        assert running()
        watch.close()
        eventually(lambda: not running())


def test_another_process_is_heard(
    open_backend: Any, start_child: Any, eventually: Any, directory: Path
) -> None:
    backend = open_backend()
    seen: list[Snapshot] = []
    backend.observe.watch(Target(Kind.VALUE, "", "key"), seen.append)
    child = start_child("auto", "3", "write", "key", "100")
    assert child.line() == "wrote 100"
    eventually(lambda: data_of(seen) == b"99")
    assert directory.exists()
