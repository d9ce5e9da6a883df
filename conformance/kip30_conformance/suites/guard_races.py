"""Guarded writes that race with changes of their guard.

A store must compare and write in one step.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TypeVar

import pytest

from kip30 import (
    KeyMissingError,
    OutcomeUnknownError,
    PluginLocator,
    Storage,
    UnavailableError,
    UnsupportedError,
    Version,
)
from kip30.driver import Capability
from kip30_conformance.clients.guarded_writer import set_until_refused
from kip30_conformance.clients.peer import Peer
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import OpenClient, OpenPeer, Suite

T = TypeVar("T")

_ROUNDS = 20
_WRITES_OF_THREADS = 2000
_WRITES_OF_PROCESSES = 600
"""Fewer, because clients that write to one partition of Cassandra hold each other up."""
_SECONDS = 60.0
_PAUSE_SECONDS = 0.02
"""Between looks, which a store that does one thing at a time in a namespace puts before writes."""
_GUARD = "n/guard"

Writer = Callable[[str, Version, int], int]
"""Sets a key over and over while the guard has a version, in a round; returns how often it did."""


class GuardRaceTests(Suite):
    """A store that compares guards first, and then writes without them, is convicted here.

    A store that does not declare ``guards`` must refuse the guard.
    """

    def test_S39_guard_race(self, open_client: OpenClient) -> None:
        """Once a change of the guard is acknowledged, no thread writes under its old version."""
        client, others = open_client(), [open_client().storage() for _ in range(2)]
        if _refuses_guards(client):
            return
        _race(
            client.storage(),
            [partial(_write, storage) for storage in others * 3],
            _WRITES_OF_THREADS,
        )

    def test_S39_guard_race_of_processes(self, client: PluginLocator, peer: OpenPeer) -> None:
        """Once a change of the guard is acknowledged, no process writes under its old version."""
        peers = [peer() for _ in range(3)]
        if _refuses_guards(client):
            return
        _race(client.storage(), [partial(_write_by, one) for one in peers], _WRITES_OF_PROCESSES)


def _refuses_guards(client: PluginLocator) -> bool:
    """Return whether the store declares no guards; then it must refuse them."""
    if Capability.GUARDS in client.backend.capabilities:
        return False
    with pytest.raises(UnsupportedError):
        client.storage().set("n/k", "", guards={_GUARD: Version(1)})
    return True


def _race(storage: Storage[str], writers: Sequence[Writer], writes: int) -> None:
    """Change the guard repeatedly while *writers* write, each to a key of its own."""
    keys = [f"n/{number}" for number in range(len(writers))]
    enough, written = -(-writes // (_ROUNDS * len(keys))) + 1, 0
    with ThreadPoolExecutor(len(keys)) as pool:
        try:
            for number in range(_ROUNDS):
                version = _retried(partial(storage.set, _GUARD, ""))
                writing = [
                    pool.submit(writer, key, version, number)
                    for writer, key in zip(writers, keys, strict=True)
                ]
                _await_writes(storage, keys, writing, (number, enough))
                _change(storage, deletes=bool(number % 2))
                seen = _values(storage, keys)
                written += sum(one.result(_SECONDS * time_scale()) for one in writing)
                assert _values(storage, keys) == seen, f"written after change {number}"
        finally:
            _retried(partial(storage.set, _GUARD, "which ends all writers"))
    assert written >= writes


def _change(storage: Storage[str], *, deletes: bool) -> None:
    """Give the guard another version, in which it may be gone and there again."""
    if deletes:
        with suppress(KeyMissingError):  # if a deletion was done whose answer came too late
            _retried(partial(storage.delete, _GUARD))
    else:
        _retried(partial(storage.update, _GUARD, ""))


def _retried(call: Callable[[], T]) -> T:
    """Return the result of *call*, retried while a busy store does not answer in time."""

    def attempt() -> tuple[T] | None:
        try:
            return (call(),)
        except (UnavailableError, OutcomeUnknownError):
            return None

    return eventually(attempt, within=_SECONDS, what="the store answers")[0]


def _await_writes(
    storage: Storage[str],
    keys: Sequence[str],
    writing: Sequence[Future[int]],
    least: tuple[int, int],
) -> None:
    """Wait until all *keys* have come as far as *least*; no writer may be refused before."""

    def has_come() -> bool:
        time.sleep(_PAUSE_SECONDS)
        found = _values(storage, keys)
        come = len(found) == len(keys) and min(map(_progress, found.values())) >= least
        return come or any(one.done() for one in writing)

    eventually(has_come, within=_SECONDS, what=f"all writers have come to {least}")
    for one in writing:
        assert not one.done(), f"a writer ended while its guard held: {one}"


def _write(storage: Storage[str], key: str, version: Version, number: int) -> int:
    return set_until_refused(storage, key, {_GUARD: version}, f"{number} ")


def _write_by(peer: Peer, key: str, version: Version, number: int) -> int:
    written: int = peer.call(
        "set_until_refused", key=key, guards={_GUARD: str(version)}, prefix=f"{number} "
    )
    return written


def _progress(value: str) -> tuple[int, int]:
    number, _, times = value.partition(" ")
    return int(number), int(times)


def _values(storage: Storage[str], keys: Sequence[str]) -> Mapping[str, str]:
    return _retried(lambda: storage.fetch_many(keys).result())
