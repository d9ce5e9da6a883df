"""Waking threads, and Ctrl-C."""

import os
import signal
import threading
import time

import pytest

from kip30.pipeline.run import wakeup
from kip30.pipeline.run.wakeup import Wakeup, set_by_interrupt
from kip30_conformance.process_resources import expect_no_more_than, resources_held

LONG = 60.0


def test_setting_wakes_all() -> None:
    stop = Wakeup()
    threads = [threading.Thread(target=stop.wait, args=[LONG]) for _ in range(3)]
    for thread in threads:
        thread.start()
    stop.set()
    for thread in threads:
        thread.join(LONG / 2)
        assert not thread.is_alive()
    stop.wait(LONG)


def test_any_of_two_wakes() -> None:
    news, stop = Wakeup(), Wakeup()
    news.set()
    stop.wait(LONG, news)
    news.clear()
    assert not news.is_set
    begun = time.monotonic()
    stop.wait(0.05, news)
    assert time.monotonic() - begun >= 0.05


def test_news_that_come_while_it_is_cleared_leave_it_able_to_wake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    news, comes = Wakeup(), iter([True])
    taken = wakeup._taken  # between its calls another thread may run

    def and_news_come(reader: int) -> bytes:
        found = taken(reader)
        if next(comes, False):
            news.set()
        return found

    news.set()
    with monkeypatch.context() as patched:
        patched.setattr(wakeup, "_taken", and_news_come)
        news.clear()
    news.set()
    waiting = threading.Thread(target=news.wait, args=[LONG], daemon=True)
    waiting.start()
    waiting.join(LONG / 2)
    assert not waiting.is_alive()


def test_nothing_stays_open() -> None:
    before = resources_held()
    for _ in range(10):
        Wakeup().set()
    expect_no_more_than(before)


def test_ctrl_c_is_raised_at_the_end() -> None:
    stop = Wakeup()
    is_done = False
    with pytest.raises(KeyboardInterrupt), set_by_interrupt(stop):  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        stop.wait(LONG)
        is_done = stop.is_set
    assert is_done


def test_a_second_ctrl_c_is_raised_at_once() -> None:
    stop = Wakeup()
    is_done = False
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), set_by_interrupt(stop):  # noqa: PT012
        os.kill(os.getpid(), signal.SIGINT)
        stop.wait(LONG)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        is_done = True
    assert not is_done
    assert signal.getsignal(signal.SIGINT) is before
