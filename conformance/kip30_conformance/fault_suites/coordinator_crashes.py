"""Groups of which a member is killed, or stopped, at each write of the protocol."""

from typing import Any, NamedTuple

import pytest

from kip30_conformance.clients.item_work import overlaps
from kip30_conformance.clients.peer import Peer
from kip30_conformance.evidence import Evidence
from kip30_conformance.fault_suites.coordinator_faults import await_parts, part, take_part
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually
from kip30_conformance.suite import OpenPeer
from kip30_conformance.suites.coordinator_rounds import CoordinatorSuite

_PACKED = 3000
"""A number of items whose assignments do not fit into the state."""
_COOPERATIVE: dict[str, Any] = {"offer": {"cooperative": True}}


class _Write(NamedTuple):
    """One write of the protocol, and the role of the member that does it.

    Attributes:
        name: The record that is written.
        by: The part of the member: ``leader``, ``follower``, ``successor`` or ``newcomer``.
        moment: For `SignalTrap`.
        item_count: How many items the group has.
        instance: That of a static member; None for a dynamic one.
    """

    name: str
    by: str
    moment: dict[str, Any]
    item_count: int = 6
    instance: str | None = None


def _state(number: int) -> dict[str, Any]:
    return {"operation": "storage.write", "prefix": "kip30.group/g/state", "number": number}


_PARTS = "kip30.assignment/g/"
_WRITES = (
    _Write("the begin of a round", "leader", _state(1)),
    _Write("parts", "leader", {"operation": "storage.write_many", "prefix": _PARTS}, _PACKED),
    _Write("the commit", "leader", _state(2)),
    _Write("a deletion", "leader", {"operation": "storage.write", "prefix": _PARTS}, _PACKED),
    _Write("the takeover", "successor", _state(1)),
    _Write("its round", "follower", {"operation": "membership.replace"}),
    _Write("its record", "newcomer", {"operation": "membership.claim", "prefix": "kip30.group/g"}),
    _Write(
        "its instance",
        "newcomer",
        {"operation": "storage.write", "prefix": "kip30.group/g/i.k"},
        instance="k",
    ),
)

each_write = pytest.mark.parametrize(
    "write", _WRITES, ids=lambda write: f"{write.by} writes {write.name}".replace(" ", "-")
)
before_and_after = pytest.mark.parametrize("is_late", [False, True], ids=["before", "after"])


@pytest.mark.fault
class CoordinatorWriteTests(CoordinatorSuite):
    """A member that ends, or pauses, at any write of a round does not stop the group."""

    @each_write
    @before_and_after
    def test_K53_killed_at_each_write(
        self,
        peer: OpenPeer,
        harness: Harness,
        evidence: Evidence,
        write: _Write,
        *,
        is_late: bool,
    ) -> None:
        """A member that is killed at a write of the protocol does not stop the group."""
        case = _Case(peer, harness, write)
        case.strike(is_late=is_late, stops=False)
        evidence.saw("killed member", case.victim.pid)
        case.await_parts()

    @each_write
    @before_and_after
    def test_K54_paused_at_each_write(
        self,
        peer: OpenPeer,
        harness: Harness,
        evidence: Evidence,
        write: _Write,
        *,
        is_late: bool,
    ) -> None:
        """A member paused at a write, which it completes too late, harms no share of others."""
        case = _Case(peer, harness, write)
        case.strike(is_late=is_late, stops=True)
        evidence.saw("stopped member", case.victim.pid)
        case.await_parts()
        case.victim.resume()
        if write.by == "newcomer":
            case.victim.receive()
        case.await_parts(case.victim)
        peers = (case.survivor, case.joiner, case.victim)
        assert overlaps({str(one.pid): one.call("worked", name="m") for one in peers}) == []

    def test_K62_follow_up_without_the_revoker(
        self, peer: OpenPeer, harness: Harness, evidence: Evidence
    ) -> None:
        """Items that a member had to give up are assigned if another process took its place."""
        survivor, victim, third = peer(**harness.steady), peer(), peer(**harness.steady)
        take_part(survivor, config={"static_grace_seconds": 600.0}, **_COOPERATIVE)
        await_parts(survivor)
        static = {"group_instance_id": "k", "eligible": False}
        take_part(victim, config=static, **_COOPERATIVE)
        await_parts(survivor, victim)
        # It joins the round in which it learns which items to give up, and not the one that
        # follows.
        victim.call("set_signal_trap", operation="membership.replace", number=2)
        take_part(third, config={"eligible": False}, **_COOPERATIVE)
        eventually(victim.has_ended, within=60, what="it was killed by its own trap")
        evidence.saw("killed member", victim.pid)
        again = peer(**harness.steady)
        take_part(again, config=static, **_COOPERATIVE)
        await_parts(survivor, third, again)
        assert all("on_lost" not in part(one)["calls"] for one in (survivor, third, again))


class _Case:
    """A group in which a member comes to one write of the protocol.

    Attributes:
        survivor: A peer whose member stays.
        victim: The peer that is struck at the write.
        joiner: One that joins before or after that, so that there is a round in any case.
    """

    def __init__(self, peer: OpenPeer, harness: Harness, write: _Write) -> None:
        """Start all peers; no member takes part yet."""
        self.survivor: Peer = peer(**harness.steady)
        self.victim: Peer = peer()
        self.joiner: Peer = peer(**harness.steady)
        # The leader before the victim, if that is to be its successor.
        self._first = peer(**harness.steady) if write.by == "successor" else None
        self._write = write

    def strike(self, *, is_late: bool, stops: bool) -> None:
        """Bring the victim to the write, and wait until it was struck there."""
        write, victim = self._write, self.victim
        first = {"leader": victim, "successor": self._first}.get(write.by) or self.survivor
        self._take_part(first)
        self._await(first)
        if self._first is not None:
            self._take_part(victim)
            self._take_part(self.survivor, eligible=False)  # or it might become the successor
            self._await(first, victim, self.survivor)
        elif write.by != "newcomer":
            other = self.survivor if first is victim else victim
            self._take_part(other, eligible=other is self.survivor)
            self._await(first, other)
        moment = {**write.moment, "is_late": is_late, "stops": stops}
        victim.call("set_signal_trap", **moment)
        if self._first is not None:
            self._first.call("end_part", name="m")
        elif write.by == "newcomer":
            config = {} if write.instance is None else {"group_instance_id": write.instance}
            victim.send("take_part", name="m", group="g", count=write.item_count, config=config)
        else:
            self._take_part(self.joiner)
        struck = victim.has_stopped if stops else victim.has_ended
        eventually(struck, within=60, what="the victim was struck by its own trap")
        if write.by in {"successor", "newcomer"}:
            self._take_part(self.joiner)

    def await_parts(self, *more: Peer) -> None:
        """Wait until survivor, joiner and *more* share all items; generations strictly grew."""
        peers = (self.survivor, self.joiner, *more)
        self._await(*peers)
        for one in peers:
            generations = part(one)["generations"]
            assert generations == sorted(set(generations))

    def _take_part(self, one: Peer, *, eligible: bool = True) -> None:
        take_part(one, count=self._write.item_count, config={"eligible": eligible})

    def _await(self, *peers: Peer) -> None:
        await_parts(*peers, count=self._write.item_count)
