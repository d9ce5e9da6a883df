"""The same things done with kip30 and with Tooz, on the same server, in turn."""

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import Any, Protocol

from typing_extensions import override

from benchmarks.clients.library import VALUE
from benchmarks.clients.tooz import DOCUMENTED_PAUSE_SECONDS, GROUP, coordinator, have_group
from benchmarks.report.figure import Figure
from benchmarks.roles import role
from benchmarks.store_address import StoreAddress
from benchmarks.subjects.handover import PAUSE, CandidatePair
from benchmarks.subjects.observation import Observation
from benchmarks.timing import seconds_of

MEMBERS = 20
CALLS = 100
EVENTS = 15
TOOZ = f"tooz:{DOCUMENTED_PAUSE_SECONDS}"
BUSY_TOOZ = "tooz:0"
NAMES = {
    "library": "kip30",
    "tooz": "Tooz",
    TOOZ: "Tooz, its documented loop",
    BUSY_TOOZ: "Tooz, looping without a pause",
}

_FULL = "full"


class GroupSide(Protocol):
    def join(self) -> None: ...
    def leave(self) -> None: ...
    def members(self) -> object: ...
    def members_with_data(self) -> object: ...
    def close(self) -> None: ...


class LibrarySide(GroupSide):
    def __init__(self, address: StoreAddress) -> None:
        self._locator = address.open("tooz")
        self._group = self._locator.group_membership(GROUP)
        self._full = self._locator.group_membership(_FULL)
        for number in range(MEMBERS):
            self._full.join(f"member-{number:02}", VALUE)

    @override
    def join(self) -> None:
        self._group.join("one", VALUE)

    @override
    def leave(self) -> None:
        self._group.leave("one")

    @override
    def members(self) -> object:
        return self._full.membership_list()

    @override
    def members_with_data(self) -> object:
        return self._full.membership()

    @override
    def close(self) -> None:
        self._locator.close()


class ToozSide(GroupSide):
    """One coordinator for each member, since a coordinator is a member of its groups."""

    def __init__(self, address: StoreAddress) -> None:
        names = [f"member-{number:02}" for number in range(MEMBERS)]
        self._full = [coordinator(address, name, beating=True) for name in names]
        self._one = self._full[0]
        for group in (GROUP, _FULL):
            have_group(self._one, group.encode())
        for one in self._full:
            one.join_group(_FULL.encode(), VALUE).get()

    @override
    def join(self) -> None:
        self._one.join_group(GROUP.encode(), VALUE).get()

    @override
    def leave(self) -> None:
        self._one.leave_group(GROUP.encode()).get()

    @override
    def members(self) -> object:
        return self._one.get_members(_FULL.encode()).get()

    @override
    def members_with_data(self) -> object:
        return self._one.get_members_with_capabilities(_FULL.encode()).get()

    @override
    def close(self) -> None:
        for one in self._full:
            one.stop()


def measure(address: StoreAddress) -> list[Figure]:
    with closing(LibrarySide(address)) as library, closing(ToozSide(address)) as tooz:
        sides: dict[str, GroupSide] = {"library": library, "tooz": tooz}
        return [
            *_calls(sides),
            *_join_events(address, {"library": library, TOOZ: tooz, BUSY_TOOZ: tooz}),
            *_leader_changes(address),
        ]


def _calls(sides: dict[str, GroupSide]) -> list[Figure]:
    samples: dict[tuple[str, str], list[float]] = {}
    for _ in range(CALLS):
        for name, side in sides.items():
            for operation, call in _timed_calls(side):
                samples.setdefault((operation, name), []).append(seconds_of(call) * 1e3)
            side.leave()
    return [_figure(*names, taken) for names, taken in sorted(samples.items())]


def _timed_calls(side: GroupSide) -> list[tuple[str, Callable[[], object]]]:
    return [
        ("join", side.join),
        (f"ids of {MEMBERS} members", side.members),
        (f"{MEMBERS} members with data", side.members_with_data),
    ]


def _join_events(address: StoreAddress, sides: dict[str, GroupSide]) -> list[Figure]:
    return [
        _figure("join to callback", name, _joins_seen(address, name, side))
        for name, side in sides.items()
    ]


def _joins_seen(address: StoreAddress, name: str, side: GroupSide) -> list[float]:
    with role("watcher", name, address) as child:
        child.expect("watching")
        return [_join_seen(child, side, number) for number in range(EVENTS)]


def _join_seen(child: Any, side: GroupSide, number: int) -> float:
    time.sleep(_pause(number))
    began = time.monotonic_ns()
    side.join()
    joined = int(child.expect("joined")[1])
    side.leave()
    child.expect("left")
    return (joined - began) / 1e6


def _leader_changes(address: StoreAddress) -> list[Figure]:
    # Tooz has no elections on etcd.
    names = ["library", TOOZ, BUSY_TOOZ] if address.store == "zookeeper" else ["library"]
    return [_figure("resign to the next leader", name, _handovers(address, name)) for name in names]


def _handovers(address: StoreAddress, name: str) -> list[float]:
    with ExitStack() as stack:
        pair = CandidatePair(stack, name, address)
        return [pair.handover(_pause(number)) for number in range(EVENTS)]


def _pause(number: int) -> float:
    return Observation(0, ()).pause(number, *PAUSE)


def _figure(operation: str, side: str, samples: list[float]) -> Figure:
    return Figure.median(f"{operation}: {NAMES[side]}", samples, "ms")
