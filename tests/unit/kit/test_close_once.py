"""Closing once, although a signal handler may raise at any moment."""

import threading

from kip30.driver.kit.lifecycle import CloseOnce
from kip30_conformance.polling import time_scale
from tests.unit.embedded.interrupting import points


def test_a_close_interrupted_anywhere_keeps_no_later_one_waiting() -> None:
    closers, ended = list[CloseOnce](), list[int]()

    def prepare() -> None:
        closers.append(CloseOnce(lambda: False))

    def close() -> None:
        closers[-1].once(lambda: ended.append(len(closers)))

    for _ in points(close, prepare=prepare):
        later = threading.Thread(target=close, daemon=True)
        later.start()
        later.join(5 * time_scale())
        assert not later.is_alive()
        assert ended.count(len(closers)) <= 1
    assert len(closers) > 3
