"""Fenced writes that race with the next leader: a store must compare and write in one step."""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count

import pytest

from kip30 import Fence, FencedError, PluginLocator, Storage, UnsupportedError
from kip30.driver import Capability
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import OpenClient, Suite

_WRITERS = 6
_ROUNDS = 15
_SECONDS = 60.0
_KEYS = [f"n/{number}" for number in range(_WRITERS)]


class FenceRaceTests(Suite):
    """A store that compares the fence and writes in separate steps fails here.

    A store that does not declare ``fencing`` must refuse the fence.
    """

    def test_L38_race_with_the_next_leader(self, open_client: OpenClient) -> None:
        """No write of a former leader changes the values that the next one reads once elected."""
        leaders = [open_client(), open_client()]
        if Capability.FENCING not in leaders[0].backend.capabilities:
            with pytest.raises(UnsupportedError):
                leaders[0].storage().set("n/k", "", fence=Fence("s", 1))
            return
        for number in range(_ROUNDS):
            leader, successor = leaders[number % 2], leaders[1 - number % 2]
            with ExitStack() as writing:
                writers = _writers_of(leader, writing)
                with successor.leader_election("s").lead("c", "") as term:
                    seen = _values(successor)
                    for writer in writers:
                        writer.result(_SECONDS * time_scale())
                    _expect_unchanged(seen, _values(successor), term.epoch)


def _writers_of(leader: PluginLocator, writing: ExitStack) -> Sequence[Future[None]]:
    """Let *leader* lead until each of some writers has written with its fence; keep writing."""
    pool = writing.enter_context(ThreadPoolExecutor(_WRITERS))
    with leader.leader_election("s").lead("c", "") as term:
        fence, begun = Fence("s", term.epoch), [threading.Event() for _ in _KEYS]
        writers = [
            pool.submit(_write_until_fenced, leader.storage(), key, fence, has_begun)
            for key, has_begun in zip(_KEYS, begun, strict=True)
        ]
        eventually(lambda: all(one.is_set() for one in begun), within=_SECONDS, what="all write")
    return writers


def _write_until_fenced(
    storage: Storage[str], key: str, fence: Fence, begun: threading.Event
) -> None:
    try:
        for number in count():
            storage.set(key, f"{fence.epoch}: {number}", fence=fence)
            begun.set()
    except FencedError:
        return
    finally:
        begun.set()


def _expect_unchanged(seen: Mapping[str, str], now: Mapping[str, str], epoch: int) -> None:
    late = {key: value for key, value in now.items() if seen.get(key) != value}
    assert not late, (
        f"a write fenced with an epoch before {epoch} was done after epoch {epoch} had begun: the"
        f" fence is not compared in the step that writes; written since then: {late}"
    )


def _values(client: PluginLocator) -> Mapping[str, str]:
    return client.storage().fetch_many(_KEYS).result()
