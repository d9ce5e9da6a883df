"""A program that forks among busy threads, run by `fork_faults` in a process of its own.

It reads one line of JSON, a verb and the arguments of `rounds` or of `stand_by`, and answers in
the same way.
"""

import faulthandler
import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import override

from kip30 import Kip30Error, LeaderElection, PluginLocator, Storage
from kip30_conformance.clients.forked_child import (
    CHILD_SECONDS,
    EVENT_SECONDS,
    TERM_SECONDS,
    Child,
    ChildReport,
    Properties,
    lead,
)
from kip30_conformance.polling import time_scale

_KEY = "busy/key"
_PARENT_SERVICE = "parent"


class Busy:
    """Threads of the parent that never stop using the store."""

    def __init__(self, properties: Properties, client: PluginLocator) -> None:
        """Start."""
        self.errors: list[str] = []
        self.writes = 0
        self._properties = properties
        self._client = client
        self._storage: Storage[str] = client.storage()
        self._stopped = threading.Event()
        work = (
            self._read,
            self._write,
            self._fetch,
            self._listen,
            self._stand,
            self._open,
            self._lead,
        )
        self._threads = [threading.Thread(target=self._go_on, args=[one]) for one in work]
        self.lines: list[Any] = []
        self.report = _Kept(self.lines)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End all threads."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _go_on(self, work: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            try:
                work()
            except Kip30Error as error:
                self.errors.append(f"{work.__name__}: {type(error).__name__}: {error}")

    def _read(self) -> None:
        self._storage.get(_KEY)

    def _write(self) -> None:
        self._storage.update(_KEY, str(self.writes + 1))
        self.writes += 1

    def _fetch(self) -> None:
        done = threading.Event()
        self._storage.fetch(_KEY).add_done_callback(lambda _: done.set())
        done.wait(EVENT_SECONDS * time_scale())

    def _listen(self) -> None:
        registry = self._client.listener_registry()
        registry.add_value_change_listener("busy/other", print)
        registry.remove_value_change_listener("busy/other", print)

    def _stand(self) -> None:
        with self._client.leader_election("busy") as election:
            election.nominate("candidate", "")

    def _open(self) -> None:
        with PluginLocator().startup(self._properties) as other:
            other.storage().get(_KEY)

    def _lead(self) -> None:
        lead(self._client, "parent", self.report)
        self._stopped.wait(TERM_SECONDS)


class _Kept(ChildReport):
    """The parent's own report about its terms."""

    def __init__(self, lines: list[Any]) -> None:
        super().__init__(-1)
        self._kept = lines

    @override
    def tell(self, what: str, value: object) -> None:
        self._kept.append([what, value])


def rounds(properties: Properties, number: int, ends: Sequence[str]) -> dict[str, Any]:
    """Fork *number* children one after the other among busy threads, and return the results."""
    heard: list[str | None] = []
    lost: list[int] = []
    with PluginLocator().startup(properties) as client:
        client.storage().put(_KEY, "0")
        registry = client.listener_registry()
        registry.add_value_change_listener(_KEY, lambda change: heard.append(change.value))
        election = client.leader_election(_PARENT_SERVICE)
        election.nominate("parent", "", on_lost=lambda term: lost.append(term.epoch))
        epoch = _epoch(election)
        sessions: list[str] = []
        client.add_session_listener(lambda event: sessions.append(event.reason))
        busy = Busy(properties, client)
        children = [Child(properties, at, ends[at % len(ends)]).wait() for at in range(number)]
        busy.stop()
        last = str(busy.writes)
        _await(lambda: heard[-1:] == [last])
        return {
            "children": children,
            "parent": busy.lines,
            "errors": busy.errors,
            "writes": busy.writes,
            "heard_last": heard[-1:] == [last],
            "lost": lost,
            "sessions_lost": sessions,
            "epochs": [epoch, _epoch(election)],
        }


def _epoch(election: LeaderElection[str]) -> int | None:
    term = election.leadership("parent")
    return term.epoch if term is not None and term.is_valid() else None


def _await(probe: Callable[[], bool]) -> None:
    until = time.monotonic() + EVENT_SECONDS * time_scale()
    while not probe() and time.monotonic() < until:
        time.sleep(0.01)


def stand_by(properties: Properties) -> None:
    """Lead and be a member while a child lives that does nothing; close on request."""
    client = PluginLocator().startup(properties)
    client.leader_election(_PARENT_SERVICE).nominate("parent", "")
    client.group_membership("g").join("parent", "")
    pid = os.fork()
    if not pid:
        _be_idle()
    _say({"child": pid})
    sys.stdin.readline()
    client.close()
    _say({"closed": True})
    sys.stdin.readline()


def _be_idle() -> None:
    """Live until killed, but no longer than any check takes."""
    signal.alarm(int(6 * CHILD_SECONDS * time_scale()))
    for stream in (0, 1):
        os.close(stream)
    while True:
        signal.pause()


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)  # noqa: T201  protocol


def main() -> None:
    """Do the request in the first line of the input."""
    faulthandler.enable()  # a child that crashes says where
    warnings.simplefilter("ignore", DeprecationWarning)  # forking among threads is the point
    request = json.loads(sys.stdin.readline())
    if request.pop("verb") == "rounds":
        _say(rounds(**request))
    else:
        stand_by(**request)


if __name__ == "__main__":
    main()
