"""Tooz as its own documentation has it: a coordinator, and a loop that runs its watchers."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tooz import coordination

from benchmarks.store_address import SESSION_SECONDS, StoreAddress

DOCUMENTED_PAUSE_SECONDS = 0.1
"""Between two runs of the watchers, in the examples of Tooz."""


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
