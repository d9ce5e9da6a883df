"""Time of a group to divide its work again, over the time that the store itself needs for that.

The floor of a round is three times the time from a write to the callback in another process, and
one reading of a group of that size. A round takes from its cause to the last `on_join_complete`.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

from benchmarks.coordinator.member_processes import PROCESSES, MemberProcesses, Round
from benchmarks.coordinator.members import GROUP
from benchmarks.growth.events import registrations
from benchmarks.report.figure import Figure, middle
from benchmarks.store_address import StoreAddress
from benchmarks.timing import seconds_of
from kip30.codecs import BYTES
from kip30.coordinator.keys import GroupKeys

SESSION_SECONDS = 10.0
_REST_SECONDS = 10.0
_WRITES = 3
_LOOK_SLACK_MS = 50.0
_LOCK_DELAY = {"consul": 0.1}
"""Delay after the session timeout until a killed client's claims are free, as a share of it."""


class Size(NamedTuple):
    """A group: members of each process, items, how often it is measured, and kills of leaders."""

    each: int
    items: int
    rounds: int
    kills: int

    @property
    def members(self) -> int:
        return self.each * PROCESSES


SIZES = (Size(1, 100, 15, 3), Size(10, 1_000, 7, 2), Size(100, 10_000, 3, 1))


class Targets(NamedTuple):
    """Targets: of 10 members over the floor, of others in ms, and of a killed leader."""

    over_floor: float | None
    most_ms: dict[int, float]
    killed: float


_TARGETS = {
    "embedded": Targets(3, {100: 300, 1_000: 3_000}, 20),
    "zookeeper": Targets(2, {100: 150, 1_000: 3_000}, 1.1),
    "etcd": Targets(2, {100: 150, 1_000: 2_000}, 1.1),
    "consul": Targets(2, {100: 250, 1_000: 4_000}, 1.1),
    "cassandra": Targets(None, {100: 5_000}, 1.15),
}


def measure(address: StoreAddress, *, rows: int | None = None) -> list[Figure]:
    """Measure the store at *address*, up to groups of *rows* members."""
    return list(_figures(address, rows))


def _figures(address: StoreAddress, most: int | None) -> Iterator[Figure]:
    event = registrations(address, 1)["value listeners: latency"]
    for size in SIZES:
        if size.members > (most or size.members) or (
            address.store == "cassandra" and size.members > max(_TARGETS[address.store].most_ms)
        ):
            break
        with ExitStack() as stack:
            group = MemberProcesses(
                stack, address, SESSION_SECONDS, each=size.each, items=size.items
            )
            yield from _at_rest(group, size)
            floor = _WRITES * event + _reading(address, group.namespace)
            yield Figure.median(f"floor of a round, {size.members:,} members", [floor], "ms")
            yield from _rounds(address, group, size, floor)
            yield from _kills(address, group, size)


def _reading(address: StoreAddress, namespace: str) -> float:
    """Return the median ms of reading the whole group."""
    with address.open(namespace, SESSION_SECONDS) as locator:
        group = locator.group_membership(GroupKeys(GROUP).group, BYTES)
        taken = [seconds_of(group.membership) * 1e3 for _ in range(7)]
    return middle(taken[1:])


def _at_rest(group: MemberProcesses, size: Size) -> Iterator[Figure]:
    """Yield what a member costs while nothing happens."""
    time.sleep(_REST_SECONDS / 2)
    rest, held = group.rest(_REST_SECONDS), group.held()
    members = f"{size.members:,} members"
    # A process of one member has a locator of its own, whose cost would be the member's.
    at_most = 1.0 if size.each > 1 else None
    yield Figure.median(
        f"at rest, {members}: CPU of each", [rest.cpu / size.members], "ms/s", at_most=at_most
    )
    if rest.requests:
        each = rest.requests / size.members
        yield Figure.median(f"at rest, {members}: requests of each", [each], "requests/s")
    yield Figure.median(
        f"at rest, {members}: threads of each", [held.threads / size.members], "threads"
    )
    yield Figure.median(f"at rest, {members}: memory of each", [held.memory / size.members], "MiB")


def _rounds(
    address: StoreAddress, group: MemberProcesses, size: Size, floor: float
) -> Iterator[Figure]:
    taken: dict[str, list[Round]] = {"joins": [], "leaves": []}
    for _ in range(size.rounds):
        taken["joins"].append(group.join())
        taken["leaves"].append(group.leave())
    targets = _TARGETS[address.store]
    for cause, those in taken.items():
        walls = [one.wall for one in those]
        name = f"a member {cause}, {size.members:,} members"
        over = targets.over_floor if size.members == PROCESSES else None
        yield Figure.median(
            f"{name}: over the floor", [one / floor for one in walls], "x", at_most=over
        )
        yield Figure.median(name, walls, "ms", at_most=_most_ms(address, size))
        yield Figure.median(f"{name}: CPU of all", [one.use.cpu for one in those], "ms")
        if not address.is_embedded:
            yield Figure.median(
                f"{name}: requests of all", [one.use.requests for one in those], "requests"
            )


def _most_ms(address: StoreAddress, size: Size) -> float | None:
    """Return how many ms a round may take; on a store that is polled, a few polls."""
    if address.store == "cassandra" and size.members == PROCESSES:
        with address.open() as locator:
            return _WRITES * locator.backend.limits.observe_seconds * 1e3 + _LOOK_SLACK_MS
    return _TARGETS[address.store].most_ms.get(size.members)


def _kills(address: StoreAddress, group: MemberProcesses, size: Size) -> Iterator[Figure]:
    for who, leader in (("the leader", True), ("another member", False)):
        name = f"kill -9 of {who}'s process to stable, {size.members:,} members"
        samples = []
        for _ in range(size.kills):
            samples.append(group.kill(leader=leader))
            group.refill()
        # The target is of a group of ten: a larger one is to be stable as soon after the session.
        target = _TARGETS[address.store].killed if leader and size.members == PROCESSES else None
        if address.is_embedded:
            yield Figure.median(name, samples, "ms", at_most=target)
            continue
        session = SESSION_SECONDS * (1 + _LOCK_DELAY.get(address.store, 0)) * 1e3
        yield Figure.median(
            name, [one / session for one in samples], "x session timeout", at_most=target
        )
