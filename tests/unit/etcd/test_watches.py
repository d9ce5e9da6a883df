"""Watches of one client, which share a stream and a thread."""

from collections.abc import Iterator
from typing import Any

import pytest

from kip30_backends.etcd.client.messages import MESSAGES
from kip30_backends.etcd.watch import RangeWatcher, WatchStream
from tests.unit.clients import Open
from tests.unit.stores.raising_sinks import expect_the_state_again


@pytest.mark.parametrize("state", ["first", "second"])
def test_a_sink_that_raised_hears_the_same_state_again_and_others_go_on(
    open_client: Open, state: str
) -> None:
    expect_the_state_again(open_client, state)


class RefusedStream:
    """A stream whose server refuses the first watch, as etcd 3.4 does once the token is old."""

    is_ours = True

    def __init__(self, reason: str, compacted: int) -> None:
        self._answer = MESSAGES["WatchResponse"](
            watch_id=1, canceled=True, cancel_reason=reason, compact_revision=compacted
        )

    def watch(self, _requests: object, _metadata: object) -> Iterator[Any]:
        return iter([self._answer])

    def cancel(self, _rpc: object) -> None:
        """Do nothing: the stream has ended."""


@pytest.mark.parametrize(
    ("reason", "compacted", "restarts"), [("permission denied", 0, False), ("", 9, True)]
)
def test_only_a_compacted_watch_begins_again_on_its_stream(
    reason: str, compacted: int, *, restarts: bool
) -> None:
    """A refused one would be refused again: the stream was opened with a token that is old."""
    channel: Any = RefusedStream(reason, compacted)
    stream, lost = WatchStream(channel, ()), list[bool]()
    stream.listen(b"k", b"", 1, RangeWatcher(lambda _: None, lambda: lost.append(True)))
    stream.run()
    assert bool(lost) is restarts
    assert stream.is_closed is not restarts
