"""The process behind `Peer`: does one request a line until its input ends."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
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
    NotAcquiredError,
    PluginLocator,
    Storage,
    close_on_signals,
    parse_version,
)
from kip30.history.recorder import HistoryRecorder
from kip30.recipes import Barrier, Grip, Lock, ReadWriteLock, Semaphore
from kip30_conformance.clients.coordinator_verbs import CoordinatorVerbs
from kip30_conformance.clients.elector_log import ElectorLog
from kip30_conformance.clients.guarded_writer import set_until_refused
from kip30_conformance.clients.lease_verbs import LeaseVerbs
from kip30_conformance.clients.random_calls import Worker


class _Client(CoordinatorVerbs, LeaseVerbs):
    """The verbs a peer knows; each method is one."""

    def __init__(self) -> None:
        self.signals = ExitStack()
        self._locator = PluginLocator()
        CoordinatorVerbs.__init__(self, self._locator)
        LeaseVerbs.__init__(self)
        self._groups: dict[str, GroupMembership[str]] = {}
        self._elections: dict[str, LeaderElection[str]] = {}
        self._joined: dict[str, Member] = {}
        self._grips: dict[str, Grip] = {}
        self._elector: ElectorLog | None = None
        self._log: list[dict[str, Any]] = []
        self._lock = threading.Lock()

    def startup(self, properties: dict[str, str]) -> None:
        self.properties = properties
        self._locator.startup(properties)

    def close(self) -> None:
        self._locator.close()

    def close_on_signals(self) -> None:
        """From now on close the locator before a signal ends this process."""
        self.signals.enter_context(close_on_signals(self._locator))

    def join(self, group: str, member_id: str, data: str = "", *, rejoin: bool = True) -> str:
        """Join, and return the incarnation."""
        member = self._joined[member_id] = self._group(group).join(
            member_id, data, rejoin=rejoin, on_lost=lambda member: self._note("lost", member.id)
        )
        return str(member.incarnation)

    def update_member(self, group: str, member_id: str, data: str) -> None:
        self._group(group).update(member_id, data)

    def leave(self, group: str, member_id: str) -> None:
        self._group(group).leave(member_id)

    def membership(self, group: str) -> dict[str, str]:
        return dict(self._group(group).membership())

    def watch_group(self, group: str) -> None:
        """Note each change of *group* in the history, by the ids of its members."""
        self._group(group).add_listener(
            lambda change: self._note("members", " ".join(sorted(change.members)))
        )

    def incarnations(self, group: str) -> dict[str, str]:
        return {one: str(version) for one, version in self._group(group).incarnations().items()}

    def share_lease(self, group: str, member_id: str) -> int:
        """Start a process that keeps the lease of a member, and return its id.

        It lasts as long as the input of this one, and takes what comes there: send no more.
        """
        descriptor = self._group(group).share_lease(member_id)
        command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, pass_fds=[descriptor]).pid

    def is_member(self, group: str, member_id: str) -> bool:
        return self._group(group).member(member_id) is not None

    def still_joined(self, member_id: str) -> bool:
        """Return whether the membership that `join` answered is still held."""
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

    def start_elector(self, broker: int) -> None:
        """Take part in Kafka's election, as the broker of this process."""
        self._elector = ElectorLog(self._locator, broker)
        self._elector.adapter.startup()

    def am_i_leader(self) -> bool:
        return self._broker().adapter.am_i_leader()

    def set_as_leader(self, key: str, value: str) -> str:
        """Write with the fence of the term that the broker was notified of last."""
        return str(self._storage().set(key, value, fence=self._broker().adapter.leadership))

    def elector_calls(self) -> list[str]:
        """Return the callbacks of the broker so far."""
        return self._broker().calls

    def leader(self, service: str) -> list[Any] | None:
        leader = self._election(service).get_leader()
        return None if leader is None else [leader.id, leader.epoch]

    def acquire(
        self, name: str, timeout_seconds: float | None = None, *, fair: bool = False
    ) -> int | None:
        """Acquire a lock, and return the token; None if it was not acquired in time."""
        try:
            grip = Lock(self._locator, name, fair=fair).acquire(timeout_seconds)
        except NotAcquiredError:
            return None
        self._grips[name] = grip
        return grip.token

    def hold(self, kind: str, name: str) -> int:
        """Acquire a ``read`` or ``write`` lock, or a ``permit``, and return the token."""
        if kind == "permit":
            grip = Semaphore(self._locator, name, 1).acquire()
        else:
            lock = ReadWriteLock(self._locator, name)
            grip = lock.read() if kind == "read" else lock.write()
        self._grips[name] = grip
        return grip.token

    def wait_at_barrier(self, name: str, parties: int) -> int:
        """Wait until the barrier opens."""
        return Barrier(self._locator, name, parties).wait()

    def holds(self, name: str) -> bool:
        """Return whether the grip acquired under *name* is held."""
        return self._grips[name].is_valid()

    def lost(self, name: str) -> bool:
        """Return whether that was lost, and is known to be within a few seconds."""
        return self._grips[name].lost.wait(10)

    def take_turns(self, service: str, candidates: list[str], seconds: float) -> list[list[Any]]:
        """Let each candidate lead once, for *seconds*.

        Returns for each its epoch, and between which moments it certainly believed to lead.
        """
        with ThreadPoolExecutor(len(candidates)) as pool:
            return list(pool.map(partial(self._take_turn, service, seconds), candidates))

    def shift_wall_clock(self, start_seconds: float, rate: float) -> None:
        """From now on let the wall clock of this process jump first, and then run at *rate*."""
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

    def set_until_refused(self, key: str, guards: dict[str, str], prefix: str) -> int:
        """See `kip30_conformance.clients.guarded_writer`."""
        versions = {guard: parse_version(text) for guard, text in guards.items()}
        return set_until_refused(self._storage(), key, versions, prefix)

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
        recorder = HistoryRecorder(Path(directory))
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
        """Return the events of the callbacks so far."""
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

    def _broker(self) -> ElectorLog:
        assert self._elector is not None
        return self._elector

    def _storage(self) -> Storage[str]:
        return self._locator.storage()

    def _take_turn(self, service: str, seconds: float, candidate: str) -> list[Any]:
        with self._election(service).lead(candidate, "") as term:
            first = last = now = time.monotonic()
            while now < first + seconds and term.is_valid():
                # Read before the request, so that the answer covers all up to it.
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


def serve(requests: Iterable[str], answered: Callable[[str], object]) -> None:
    """Do each of *requests*, lines of JSON, and pass the answer on; then close the locator."""
    client = _Client()
    with client.signals, client.clients:
        for line in requests:
            answered(json.dumps(_answer(client, json.loads(line))))
    client.close()


def main() -> None:
    """Serve requests until the input ends, then close the locator."""
    serve(sys.stdin, partial(print, flush=True))


if __name__ == "__main__":
    main()
