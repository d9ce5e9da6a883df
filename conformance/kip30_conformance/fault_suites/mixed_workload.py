"""Two clients that use all interfaces at once, so that a server's fault affects every call."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Self

import pytest

from kip30 import (
    Kip30Error,
    LeaderChange,
    Leadership,
    MembershipChange,
    Storage,
    ValueChange,
    Version,
)
from kip30_conformance.clients.background_load import Load
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.rivals import Rivals
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.server_suite import Linked, OpenLinked, ServerSuite

_BEAT = "life/beat"


class FullClient:
    """A client that is a candidate and a member, listens to everything, and can write.

    Attributes:
        name: As candidate and as member.
        client, link: See `Linked`.
    """

    def __init__(self, name: str, linked: Linked) -> None:
        """Take part as *name*."""
        self.name = name
        self.client, self.link = linked
        self.storage: Storage[str] = self.client.storage()
        self.election = self.client.leader_election("life")
        self.group = self.client.group_membership("life")
        self.values = Recorder[ValueChange[str]]()
        self.leaders = Recorder[LeaderChange[str]]()
        self.members = Recorder[MembershipChange[str]]()
        self.election.add_listener(self.leaders, initial=True)
        self.group.add_listener(self.members, initial=True)
        self.client.listener_registry().add_value_change_listener(_BEAT, self.values)

    def enter(self) -> None:
        """Join, and be nominated."""
        self.group.join(self.name, "")
        self.election.nominate(self.name, "")

    def has_heard(self, beat: Version, leader: tuple[str, int], members: set[str]) -> bool:
        """Return whether its listeners received *beat*, and last *leader* and *members*."""
        shown = self.leaders.events[-1].leader
        return (
            any(event.version and event.version >= beat for event in self.values.events)
            and shown is not None
            and (shown.id, shown.epoch) == leader
            and set(self.members.events[-1].members) == members
        )

    def check(self) -> None:
        """Require the events of its listeners to be in order."""
        epochs = [event.leader.epoch for event in self.leaders.events if event.leader]
        versions = [event.version for event in self.values.events if event.version]
        assert epochs == sorted(set(epochs))
        assert versions == sorted(set(versions))


class MixedWorkload:
    """Runs the workload while the context is open, then judges what was recorded.

    Attributes:
        inhabitants: The clients.
        load: Their reads and writes, made all the time.
        rivals: The terms that they believe in.
    """

    def __init__(self, clients: Sequence[Linked]) -> None:
        """Prepare the workload of *clients*."""
        self.inhabitants = [FullClient(f"c{number}", one) for number, one in enumerate(clients)]
        self.load = Load([one.storage for one in self.inhabitants])
        self.rivals = Rivals({one.name: one.election for one in self.inhabitants})
        self._going = ExitStack()

    def __enter__(self) -> Self:
        """Start, and wait until everything works."""
        for one in self.inhabitants:
            one.enter()
        for part in (self.load, self.rivals):
            self._going.enter_context(part)
        self.expect_well(within=10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End, and unless something has failed already, judge the records."""
        if error is None:
            self.load.await_evidence()
        self._going.close()
        if error is None:
            self.check()

    def inhabitant(self, name: str) -> FullClient:
        """Return the client of that name."""
        return next(one for one in self.inhabitants if one.name == name)

    def check(self) -> None:
        """Require that no promise was broken, even if everything works now."""
        self.load.expect_linearizable()
        self.rivals.check()
        for one in self.inhabitants:
            one.check()

    def expect_well(self, *, within: float) -> None:
        """Wait until writes succeed, one leads, all are members, and listeners are notified."""
        begun = time.monotonic()
        conditions: dict[str, Callable[[], bool]] = {
            "all write": partial(self.load.has_progressed, begun),
            "one leads, and all see who": self._is_led,
            "all are members, and see each other": self._is_complete,
            "all listeners are notified": partial(self._is_heard, self._beat(within)),
        }
        for what, holds in conditions.items():
            left = within - (time.monotonic() - begun) / time_scale()
            eventually(partial(_certainly, holds), within=left, what=what)

    def _beat(self, within: float) -> Version:
        """Write the value that the listeners are to receive, and return its version."""
        writer = self.inhabitants[0].storage
        return eventually(partial(_written, writer), within=within, what="a beat is written")

    def _is_led(self) -> bool:
        leading = self.rivals.leading()
        seen = [one.election.get_leader() for one in self.inhabitants]
        return len(leading) == 1 and all(
            leader is not None and (leader.id, leader.epoch) == _named(leading[0])
            for leader in seen
        )

    def _is_complete(self) -> bool:
        names = {one.name for one in self.inhabitants}
        return all(
            one.group.member(one.name) is not None and set(one.group.membership_list()) == names
            for one in self.inhabitants
        )

    def _is_heard(self, beat: Version) -> bool:
        leading = self.rivals.leading()
        names = {one.name for one in self.inhabitants}
        return len(leading) == 1 and all(
            one.has_heard(beat, _named(leading[0]), names) for one in self.inhabitants
        )


class MixedWorkloadSuite(ServerSuite):
    """Base of the suites in which clients keep working while servers fail."""

    @pytest.fixture
    def life(self, open_linked: OpenLinked) -> Iterator[MixedWorkload]:
        """Yield the workload of two clients, and judge it afterwards."""
        with MixedWorkload([open_linked(), open_linked()]) as life:
            yield life


def _named(term: Leadership) -> tuple[str, int]:
    return term.candidate, term.epoch


def _certainly(holds: Callable[[], bool]) -> bool:
    """Return whether it *holds*; false if the store does not answer."""
    with suppress(Kip30Error):
        return holds()
    return False


def _written(storage: Storage[str]) -> Version | None:
    with suppress(Kip30Error):
        if storage.get(_BEAT) is None:
            return storage.put(_BEAT, "")
        return storage.update(_BEAT, "")
    return None
