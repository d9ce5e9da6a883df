"""A removal and a call that begins at the same moment."""

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from kip30.runtime import call_gate
from kip30.runtime.call_gate import CallGate
from kip30_conformance.polling import eventually, time_scale


@pytest.fixture
def hurried() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried")
def test_no_call_begins_once_the_gate_is_closed() -> None:
    late: list[int] = []
    for number in range(1500):
        closed, go, gate = [False], threading.Barrier(2), CallGate()

        def callback(event: int, closed: list[bool] = closed) -> None:
            if closed[0]:
                late.append(event)

        def call(gate: CallGate = gate, go: threading.Barrier = go, event: int = number) -> None:
            go.wait()
            for _ in range(5):
                gate.call(callback, event)

        caller = threading.Thread(target=call)
        caller.start()
        go.wait()
        gate.close()
        closed[0] = True
        caller.join()
    assert not late


def test_closing_waits_for_a_call_that_is_about_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that has passed the gate and has not reached the callback yet."""
    gate, begun, may_end = CallGate(), threading.Event(), threading.Event()
    looks: list[int] = []

    def about_to_call(thread: int) -> bool:
        looks.append(thread)
        return len(looks) < 3

    def callback(_: None) -> None:
        begun.set()
        may_end.wait(60 * time_scale())

    caller = threading.Thread(target=gate.call, args=(callback, None))
    caller.start()
    begun.wait()
    monkeypatch.setattr(call_gate, "_is_about_to_call", about_to_call)
    gate.close()
    assert looks == [caller.ident] * 3
    may_end.set()
    caller.join()


def test_a_call_that_is_about_to_begin_is_recognized() -> None:
    gate, lock = CallGate(), threading.Lock()
    with lock:  # a callback in C has no line of its own, as one that has not begun
        caller = threading.Thread(target=gate.call, args=(lock.acquire, True))
        caller.start()
        eventually(lambda: gate._caller == caller.ident)
        assert call_gate._is_about_to_call(gate._caller or 0)
    caller.join()


def test_closing_waits_for_no_call_to_end() -> None:
    gate, begun, may_end = CallGate(), threading.Event(), threading.Event()

    def callback(_: None) -> None:
        begun.set()
        may_end.wait(60 * time_scale())

    caller = threading.Thread(target=gate.call, args=(callback, None))
    caller.start()
    begun.wait()
    gate.close()
    assert caller.is_alive()
    may_end.set()
    caller.join()


def test_a_callback_closes_its_own_gate() -> None:
    gate = CallGate()
    gate.call(lambda _: gate.close(), None)
    assert gate.call(lambda _: "called", None) is None


def test_a_callback_in_c_does_not_keep_the_gate_open() -> None:
    gate, lock = CallGate(), threading.Lock()
    lock.acquire()
    caller = threading.Thread(target=gate.call, args=(lock.acquire, True))
    caller.start()
    gate.close()
    lock.release()
    caller.join()


def test_each_call_is_measured_when_it_has_ended() -> None:
    measured: list[object] = []
    gate = CallGate(lambda result, began: measured.append((result, began <= time.monotonic())))
    assert gate.call(str, 7) == "7"
    with pytest.raises(ZeroDivisionError):
        gate.call(lambda _: 1 // 0, None)
    gate.close()
    gate.call(str, 8)
    assert measured == [("7", True), (None, True)]


# Closes gates during calls, while threads begin and end, and while objects are collected whose
# finalizers let other threads run.
COLLECTING = """
import gc, threading, time
from kip30.runtime.call_gate import CallGate

class Cycle:
    def __init__(self):
        self.itself = self
    def __del__(self):
        time.sleep(0)

def repeat(act):
    while not over.is_set():
        act()
        time.sleep(0)

def begin_and_end():
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()

over = threading.Event()
for act in (begin_and_end, begin_and_end, Cycle):
    threading.Thread(target=repeat, args=(act,), daemon=True).start()
gc.set_threshold(1)
for _ in range(1500):
    gate, begun, may_end = CallGate(), threading.Event(), threading.Event()
    caller = threading.Thread(target=gate.call, args=(lambda _: (begun.set(), may_end.wait()), 0))
    caller.start()
    begun.wait()
    gate.close()
    may_end.set()
    caller.join()
assert gc.isenabled()
over.set()
"""


@pytest.mark.medium
def test_closing_freezes_no_process_whose_garbage_is_collected() -> None:
    subprocess.run([sys.executable, "-c", COLLECTING], timeout=30 * time_scale(), check=True)


def test_closing_leaves_the_collector_as_it_is() -> None:
    gate, begun, may_end = CallGate(), threading.Event(), threading.Event()

    def callback(_: None) -> None:
        begun.set()
        may_end.wait(60 * time_scale())

    caller = threading.Thread(target=gate.call, args=(callback, None))
    caller.start()
    begun.wait(60 * time_scale())
    gc.disable()
    try:
        gate.close()
        assert not gc.isenabled()
    finally:
        gc.enable()
        may_end.set()
        caller.join()
