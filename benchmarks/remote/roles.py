"""Roles of the other processes: ``python -m benchmarks.remote.roles ROLE ARGUMENTS``."""

import sys
import time
from collections.abc import Callable
from threading import Event

from benchmarks.clients.library import VALUE, LibraryCandidate
from benchmarks.clients.opening import candidate as candidate_of
from benchmarks.clients.opening import watched_key
from benchmarks.processes import Child, role
from benchmarks.roles import say
from benchmarks.store_address import StoreAddress

END = "end"
"""The value at which the listener stops."""


def started(name: str, *arguments: object) -> Child:
    """Start a role in another process."""
    return role(name, *arguments, module="benchmarks.remote.roles")


def listener(side: str, address: str) -> None:
    """Listen to the key until it is ``END``; then print each value and when it was heard."""
    heard: list[tuple[str, int]] = []
    ended = Event()

    def hear(value: str) -> None:
        heard.append((value, time.monotonic_ns()))
        if value == END:
            ended.set()

    one = watched_key(
        side, StoreAddress.parse(address)
    )  # kept, because without a reference it is closed
    one.listen(hear)
    say("listening")
    ended.wait()
    for value, moment in heard:
        say("heard", value, moment)


def candidate(side: str, address: str) -> None:
    """Campaign and resign on request, and print when, and when elected."""
    one = candidate_of(side, StoreAddress.parse(address), _say_elected)
    for line in sys.stdin:
        if line.strip() == "campaign":
            one.campaign()
            say("campaigning")
        else:
            say("resigned", one.resign())


def mortal(address: str, session_seconds: str) -> None:
    """Be nominated until killed or the input ends, and print when elected."""
    one = LibraryCandidate(
        StoreAddress.parse(address),
        _say_elected,
        service="crash",
        session_seconds=float(session_seconds),
    )
    one.campaign()
    say("campaigning")
    sys.stdin.read()


def contender(address: str, kind: str, number: str) -> None:
    """Join or campaign on request, and print when that was done, and whether we lead."""
    with StoreAddress.parse(address).open("crowd") as locator:
        locator.storage().get("bench/one")  # so that nothing is left to connect
        say("ready")
        sys.stdin.readline()
        if kind == "join":
            locator.group_membership("crowd").join(f"member-{number}", VALUE)
            leads = False
        else:
            leads = locator.leader_election("crowd").nominate(f"candidate-{number}", VALUE)
        say("done", kind, time.monotonic_ns(), leads)
        sys.stdin.read()


def watcher(side: str, address: str) -> None:
    """Print when a member has joined or left the group, as Tooz's loop or kip30 reports it."""
    from benchmarks.remote.tooz_roles import watch  # noqa: PLC0415  as in sides

    _kept = watch(side, StoreAddress.parse(address), lambda what: say(what, time.monotonic_ns()))
    sys.stdin.read()


def _say_elected() -> None:
    say("elected", time.monotonic_ns())


ROLES: dict[str, Callable[..., None]] = {
    one.__name__: one for one in (listener, candidate, mortal, contender, watcher)
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
