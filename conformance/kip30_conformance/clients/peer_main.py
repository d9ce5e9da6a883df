"""The process behind `Peer`: obeys, line by line, until its input ends."""

import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from kip30 import (
    Fence,
    GroupMembership,
    KeyExistsError,
    Kip30Error,
    LeaderElection,
    Leadership,
    Member,
    PluginLocator,
    Storage,
    close_on_signals,
)
from kip30.history.recorder import Recorder
from kip30_conformance.clients.random_calls import Worker


class _Client:
    """The verbs a peer knows; each method is one."""

    def __init__(self) -> None:
        self.signals = ExitStack()
        self._locator = PluginLocator()
        self._groups: dict[str, GroupMembership[str]] = {}
        self._elections: dict[str, LeaderElection[str]] = {}
        self._joined: dict[str, Member] = {}
        self._log: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def startup(self, properties: dict[str, str]) -> None:
        self._locator.startup(properties)

    def close(self) -> None:
        self._locator.close()

    def close_on_signals(self) -> None:
        """From now on close the locator before a signal ends this process."""
        self.signals.enter_context(close_on_signals(self._locator))

    def join(self, group: str, member_id: str, data: str = "") -> None:
        self._joined[member_id] = self._group(group).join(
            member_id, data, on_lost=lambda member: self._note("lost", member.id)
        )

    def update_member(self, group: str, member_id: str, data: str) -> None:
        self._group(group).update(member_id, data)

    def leave(self, group: str, member_id: str) -> None:
        self._group(group).leave(member_id)

    def membership(self, group: str) -> dict[str, str]:
        return dict(self._group(group).membership())

    def is_member(self, group: str, member_id: str) -> bool:
        return self._group(group).member(member_id) is not None

    def still_joined(self, member_id: str) -> bool:
        """Say whether the membership that `join` answered is still held."""
        return self._joined[member_id].is_valid()

    def nominate(self, service: str, candidate: str, data: str = "") -> bool:
        return self._election(service).nominate(
            candidate,
            data,
            on_elected=lambda term: self._term("elected", term),
            on_lost=lambda term: self._term("lost", term),
        )

    def resign(self, service: str, candidate: str) -> None:
        self._election(service).resign(candidate)

    def epoch(self, service: str, candidate: str) -> int | None:
        """Return the epoch in which *candidate* leads by its own clock right now."""
        leadership = self._election(service).leadership(candidate)
        return leadership.epoch if leadership is not None and leadership.is_valid() else None

    def leader(self, service: str) -> list[Any] | None:
        leader = self._election(service).get_leader()
        return None if leader is None else [leader.id, leader.epoch]

    def take_turns(self, service: str, candidates: list[str], seconds: float) -> list[list[Any]]:
        """Have each candidate lead once, for *seconds*.

        Answers for each its epoch, and between which moments it certainly believed to lead.
        """
        with ThreadPoolExecutor(len(candidates)) as pool:
            return list(pool.map(partial(self._take_turn, service, seconds), candidates))

    def shift_wall_clock(self, start_seconds: float, rate: float) -> None:
        """From now on have the wall clock of this process jump first, and run at *rate* then."""
        true_time, begun = time.time, time.time()
        time.time = lambda: begun + start_seconds + rate * (true_time() - begun)

    def wall_clock(self) -> float:
        return time.time()

    def put(self, key: str, value: str, fence: list[Any] | None = None) -> str:
        return str(self._storage().put(key, value, fence=_fence(fence)))

    def update(self, key: str, value: str, fence: list[Any] | None = None) -> str:
        return str(self._storage().update(key, value, fence=_fence(fence)))

    def set_each(self, key: str, values: list[str]) -> list[str]:
        """Set *key* to one value after the other, and return the versions."""
        return [str(self._storage().set(key, value)) for value in values]

    def get(self, key: str) -> list[str] | None:
        found = self._storage().get(key)
        return None if found is None else [found.value, str(found.version)]

    def delete(self, key: str) -> None:
        self._storage().delete(key)

    def put_each(self, keys: list[str], value: str) -> list[str]:
        """Put *keys* one after the other and return those that were not there."""
        return [key for key in keys if self._creates(key, value)]

    def work(self, directory: str, process: str, keys: list[str], seed: int, times: int) -> None:
        """Do random things to *keys*, and leave a history in *directory*."""
        recorder = Recorder(Path(directory))
        Worker(self._storage(), recorder, process, keys, seed).work(times)
        recorder.close()

    def increment(self, key: str, times: int) -> int:
        """Add one to the number under *key*, *times* times, each by compare-and-set."""
        storage, lost = self._storage(), 0
        while times:
            found = storage.get(key)
            assert found is not None
            try:
                storage.compare_and_set(key, found.version, str(int(found.value) + 1))
                times -= 1
            except Kip30Error:
                lost += 1
        return lost

    def history(self) -> list[dict[str, Any]]:
        """Return what the callbacks have received so far."""
        with self._lock:
            return list(self._log)

    def _creates(self, key: str, value: str) -> bool:
        try:
            self._storage().put(key, value)
        except KeyExistsError:
            return False
        return True

    def _group(self, group: str) -> GroupMembership[str]:
        if group not in self._groups:
            self._groups[group] = self._locator.group_membership(group)
        return self._groups[group]

    def _election(self, service: str) -> LeaderElection[str]:
        if service not in self._elections:
            self._elections[service] = self._locator.leader_election(service)
        return self._elections[service]

    def _storage(self) -> Storage[str]:
        return self._locator.storage()

    def _take_turn(self, service: str, seconds: float, candidate: str) -> list[Any]:
        with self._election(service).lead(candidate, "") as term:
            first = last = now = time.monotonic()
            while now < first + seconds and term.is_valid():
                # Read before the question, so that the answer covers all up to it.
                last, now = now, time.monotonic()
            return [term.epoch, first, last]

    def _term(self, what: str, term: Leadership) -> None:
        self._note(what, term.candidate, epoch=term.epoch)

    def _note(self, what: str, name: str, **more: Any) -> None:
        with self._lock:
            self._log.append({"what": what, "name": name, "at": time.monotonic(), **more})


def _fence(fence: list[Any] | None) -> Fence | None:
    return None if fence is None else Fence(*fence)


def _answer(client: _Client, request: dict[str, Any]) -> dict[str, Any]:
    act: Callable[..., Any] = getattr(client, request.pop("verb"))
    try:
        return {"result": act(**request)}
    except Kip30Error as error:
        return {"error": type(error).__name__, "text": str(error)}


def main() -> None:
    """Serve requests until the input ends, then close the locator."""
    client = _Client()
    with client.signals:
        for line in sys.stdin:
            print(json.dumps(_answer(client, json.loads(line))), flush=True)  # noqa: T201  protocol
    client.close()


if __name__ == "__main__":
    main()
