"""Tooz as its own documentation has it: a coordinator, and a loop that runs its watchers.

Beside it is a watch of a group with kip30, which reports the same.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import uuid4

from tooz import coordination
from typing_extensions import override

from benchmarks.clients.interfaces import Candidate, Elected
from benchmarks.store_address import SESSION_SECONDS, StoreAddress
from kip30 import MembershipChange

GROUP = "watched"
_SERVICE = b"handover"

DOCUMENTED_PAUSE_SECONDS = 0.1
"""Between two runs of the watchers, in the examples of Tooz."""

Report = Callable[[str], None]


def coordinator(address: StoreAddress, member: str, *, beating: bool = False) -> Any:
    """Return a started coordinator, whose session is as long as kip30's.

    One that is not *beating* has to be run by a `Loop`, so that its session does not end.
    """
    seconds = int(SESSION_SECONDS)
    if address.store == "zookeeper":
        url = f"zookeeper://{address.location}?timeout={seconds}"
    else:
        url = (
            f"etcd3+http://{address.location}"
            f"?timeout={seconds}&lock_timeout={seconds}&membership_timeout={seconds}"
        )
    one: Any = coordination.get_coordinator(url, member.encode())
    one.start(start_heart=beating)
    return one


def have_group(one: Any, group: bytes) -> None:
    with suppress(coordination.GroupAlreadyExist):
        one.create_group(group).get()


class Loop:
    """Runs a coordinator's heartbeat and watchers again and again, on a thread.

    The coordinator is for one thread at a time: use it under the *lock*.
    """

    def __init__(self, one: Any, pause_seconds: float) -> None:
        self.lock = threading.Lock()
        self._coordinator = one
        self._pause_seconds = pause_seconds
        threading.Thread(target=self._run, daemon=True).start()

    def under_lock(self, action: Callable[[], object]) -> int:
        """Do *action*; return the moment it began, in nanoseconds."""
        with self.lock:
            began = time.monotonic_ns()
            action()
        return began

    def _run(self) -> None:
        while True:
            with self.lock:
                self._coordinator.heartbeat()
                self._coordinator.run_watchers()
            time.sleep(self._pause_seconds)


class ToozCandidate(Candidate):
    def __init__(self, address: StoreAddress, elected: Elected, pause_seconds: float) -> None:
        self._coordinator = coordinator(address, str(uuid4()))
        have_group(self._coordinator, _SERVICE)
        self._elected = elected
        self._loop = Loop(self._coordinator, pause_seconds)

    @override
    def campaign(self) -> None:
        watch = self._coordinator.watch_elected_as_leader
        self._loop.under_lock(lambda: watch(_SERVICE, self._hear))

    @override
    def resign(self) -> int:
        return self._loop.under_lock(self._stand_down)

    def _stand_down(self) -> None:
        self._coordinator.unwatch_elected_as_leader(_SERVICE, self._hear)
        self._coordinator.stand_down_group_leader(_SERVICE)

    def _hear(self, _event: Any) -> None:
        self._elected()


def watch(side: str, address: StoreAddress, report: Report) -> object:
    """Call *report* with ``joined`` and ``left``; return the object that watches."""
    if side == "library":
        return _watch_with_kip30(address, report)
    return _watch_with_tooz(address, report, float(side.partition(":")[2]))


def _watch_with_kip30(address: StoreAddress, report: Report) -> object:
    locator = address.open("tooz")

    def hear(change: MembershipChange[str]) -> None:
        report("joined" if change.joined else "left")

    locator.group_membership(GROUP).add_listener(hear)
    report("watching")
    return locator


def _watch_with_tooz(address: StoreAddress, report: Report, pause_seconds: float) -> object:
    one, group = coordinator(address, str(uuid4())), GROUP.encode()
    have_group(one, group)
    one.watch_join_group(group, lambda _: report("joined"))
    one.watch_leave_group(group, lambda _: report("left"))
    one.run_watchers()
    report("watching")
    return Loop(one, pause_seconds)
