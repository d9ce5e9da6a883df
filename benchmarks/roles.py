"""Roles of the other processes: ``python -m benchmarks.roles ROLE ARGUMENTS``."""

import sys
import threading
import time
from collections.abc import Callable

import psutil

from benchmarks.store_address import StoreAddress
from kip30 import Leadership, ValueChange

END = "end"
"""The value at which the listener stops."""

_SETTLE_SECONDS = 1.0


def members(address: str, group: str, number: str, sessions: str, data: str) -> None:
    """Be *number* members in *sessions* sessions until the input ends."""
    groups = [
        StoreAddress.parse(address).open().group_membership(group) for _ in range(int(sessions))
    ]
    for member in range(int(number)):
        groups[member % len(groups)].join(f"member-{member:03}", data)
    say("joined")
    sys.stdin.read()


def listener(address: str, key: str) -> None:
    """Listen to *key* until it is ``END``; then print each value and when it was heard."""
    heard: list[tuple[str | None, int]] = []
    ended = threading.Event()

    def hear(change: ValueChange[str]) -> None:
        heard.append((change.value, time.monotonic_ns()))
        if change.value == END:
            ended.set()

    with StoreAddress.parse(address).open() as locator:
        locator.listener_registry().add_value_change_listener(key, hear)
        say("listening")
        ended.wait()
    for value, moment in heard:
        say(value, moment)


def candidate(address: str, service: str, name: str) -> None:
    """Be nominated until killed or the input ends, and print when elected."""

    def elected(leadership: Leadership) -> None:
        say("elected", time.monotonic_ns(), leadership.epoch)

    with StoreAddress.parse(address).open() as locator:
        locator.leader_election(service).nominate(name, "", on_elected=elected)
        say("nominated")
        sys.stdin.read()


def idler(address: str, listeners: str, keys: str, seconds: str) -> None:
    """Add listeners to a number of keys; print their cost in threads, MiB and CPU seconds."""
    process = psutil.Process()
    with StoreAddress.parse(address).open() as locator:
        registry = locator.listener_registry()
        locator.storage().get("bench/0")
        threads, memory = process.num_threads(), process.memory_info().rss
        for number in range(int(listeners)):
            registry.add_value_change_listener(f"bench/{number % int(keys)}", _listener())
        most = process.num_threads()
        time.sleep(_SETTLE_SECONDS)
        before = time.process_time()
        time.sleep(float(seconds))
        spent = time.process_time() - before
        most = max(most, process.num_threads())
        say(most - threads, (process.memory_info().rss - memory) / 2**20, spent)


def _listener() -> Callable[[object], None]:
    return lambda _change: None


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # one write, for threads may meet here
    sys.stdout.flush()


ROLES: dict[str, Callable[..., None]] = {
    role.__name__: role for role in (members, listener, candidate, idler)
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
