"""Guarded writes that one batch can carry, and those that it cannot."""

import time
from collections import deque
from collections.abc import Sequence

import pytest

from kip30.driver.records import Condition, Guard, Version, Write
from kip30.names import Key
from kip30_backends.cassandra.storage import QueuedWrite, _fitting

OLD, NEW = Version(1), Version(2)


def queued(name: str, **guards: Version) -> QueuedWrite:
    held = tuple(Guard(Key("n", guard), version) for guard, version in guards.items())
    write = Write(Key("n", name), "nonce", b"", Condition.ANY, guards=held)
    return QueuedWrite(write, time.monotonic())


@pytest.mark.parametrize(
    ("batch", "together"),
    [
        ([queued("a", g=OLD), queued("b", g=OLD), queued("c")], 3),
        ([queued("a", g=OLD), queued("b", g=OLD, h=NEW), queued("c", h=NEW)], 3),
        ([queued("a", g=OLD), queued("b", g=NEW)], 1),
        ([queued("a", g=OLD), queued("b", h=OLD, g=NEW)], 1),
        ([queued("a", g=OLD), queued("g")], 1),
        ([queued("g"), queued("a", g=OLD)], 1),
        ([queued("a", b=OLD), queued("b", a=OLD)], 1),
        ([queued("a", g=OLD), queued("a", g=OLD)], 1),
        ([queued("a", g=OLD), queued("b"), queued("g"), queued("c")], 2),
    ],
)
def test_writes_that_conflict_over_a_guard_go_in_separate_batches(
    batch: Sequence[QueuedWrite], together: int
) -> None:
    queue = deque(batch)
    assert _fitting(queue) == list(batch[:together])
    assert list(queue) == list(batch[together:])
