"""Tooz, and kip30 beside it, in a process of their own: candidates, and watchers of a group."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from typing_extensions import override

from benchmarks.clients.interfaces import Candidate, Elected
from benchmarks.remote.tooz_loop import Loop, coordinator, have_group
from benchmarks.store_address import StoreAddress
from kip30 import MembershipChange

GROUP = "watched"
_SERVICE = b"handover"

Told = Callable[[str], None]


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


def watch(side: str, address: StoreAddress, told: Told) -> object:
    """Call *told* with ``joined`` and ``left``; return the object that watches."""
    if side == "library":
        return _watch_with_kip30(address, told)
    return _watch_with_tooz(address, told, float(side.partition(":")[2]))


def _watch_with_kip30(address: StoreAddress, told: Told) -> object:
    locator = address.open("tooz")

    def hear(change: MembershipChange[str]) -> None:
        told("joined" if change.joined else "left")

    locator.group_membership(GROUP).add_listener(hear)
    told("watching")
    return locator


def _watch_with_tooz(address: StoreAddress, told: Told, pause_seconds: float) -> object:
    one, group = coordinator(address, str(uuid4())), GROUP.encode()
    have_group(one, group)
    one.watch_join_group(group, lambda _: told("joined"))
    one.watch_leave_group(group, lambda _: told("left"))
    one.run_watchers()
    told("watching")
    return Loop(one, pause_seconds)
