"""Roles of the other processes: ``python -m benchmarks.roles ROLE ARGUMENTS``."""

import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import psutil

from benchmarks.clients import opening
from benchmarks.clients.library import VALUE
from benchmarks.processes import Child, print_line, started
from benchmarks.store_address import SESSION_SECONDS, StoreAddress

END = "end"
"""The value at which the listener stops."""

_SETTLE_SECONDS = 1.0


def role(name: str, *arguments: object) -> Child:
    """Start a role in another process."""
    return started("benchmarks.roles", name, *arguments)


def listener(side: str, address: str) -> None:
    """Listen to the key until it is ``END``; then print each value and when it was heard."""
    heard: list[tuple[str, int]] = []
    ended = threading.Event()

    def hear(value: str) -> None:
        heard.append((value, time.monotonic_ns()))
        if value == END:
            ended.set()

    # Kept, because without a reference it is closed.
    key = opening.watched_key(side, StoreAddress.parse(address))
    key.listen(hear)
    print_line("listening")
    ended.wait()
    for value, moment in heard:
        print_line("heard", value, moment)


def candidates(
    side: str, address: str, first: str, number: str, session_seconds: str = str(SESSION_SECONDS)
) -> None:
    """Run *number* candidates, from number *first*, each with a session of its own.

    Each line of the input has a verb, ``campaign`` or ``resign``, and a candidate's number. Prints
    when that was done or began, and when a candidate is elected.
    """
    chosen = {
        one: opening.candidate(
            side,
            StoreAddress.parse(address),
            partial(_print_moment, one, "elected"),
            one,
            float(session_seconds),
        )
        for one in range(int(first), int(first) + int(number))
    }
    for line in sys.stdin:
        verb, word = line.split()
        one = int(word)
        if verb == "campaign":
            chosen[one].campaign()
            _print_moment(one, "campaigning")
        else:
            print_line("resigned", one, chosen[one].resign())


def contender(address: str, kind: str, number: str) -> None:
    """Join or campaign on request, and print when that was done, and whether we lead."""
    with StoreAddress.parse(address).open("contention") as locator:
        locator.storage().get("bench/one")  # so that nothing is left to connect
        print_line("ready")
        sys.stdin.readline()
        if kind == "join":
            locator.group_membership("contended").join(f"member-{number}", VALUE)
            leads = False
        else:
            leads = locator.leader_election("contended").nominate(f"candidate-{number}", VALUE)
        print_line("done", kind, time.monotonic_ns(), leads)
        sys.stdin.read()


def members(address: str, group: str, number: str, sessions: str, data: str) -> None:
    """Be *number* members in *sessions* sessions until the input ends."""
    locators = [StoreAddress.parse(address).open() for _ in range(int(sessions))]
    groups = [one.group_membership(group) for one in locators]
    for member in range(int(number)):
        groups[member % len(groups)].join(f"member-{member:03}", data)
    print_line("joined")
    sys.stdin.read()


def watcher(side: str, address: str) -> None:
    """Print when a member has joined or left the group, as Tooz's loop or kip30 reports it."""
    from benchmarks.clients.tooz import watch  # noqa: PLC0415  few stores need it

    _kept = watch(
        side, StoreAddress.parse(address), lambda what: print_line(what, time.monotonic_ns())
    )
    sys.stdin.read()


def idle_listeners(address: str, listeners: str, keys: str, seconds: str) -> None:
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
        print_line(most - threads, (process.memory_info().rss - memory) / 2**20, spent)


def _listener() -> Callable[[object], None]:
    return lambda _change: None


def _print_moment(number: int, word: str) -> None:
    print_line(word, number, time.monotonic_ns())


ROLES: dict[str, Callable[..., None]] = {
    one.__name__: one for one in (listener, candidates, contender, members, watcher, idle_listeners)
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
