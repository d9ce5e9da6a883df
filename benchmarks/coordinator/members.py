"""Members of a group in one process: ``python -m benchmarks.coordinator.members …``.

ADDRESS NAMESPACE SESSION_SECONDS ITEMS names the group. Each line of the input is a verb of
`Members`. The process prints ``took`` whenever all its members have taken up the same generation.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping

from typing_extensions import override

from benchmarks.processes import print_line
from benchmarks.store_address import StoreAddress
from kip30 import PluginLocator
from kip30.coordinator import GroupConfig
from kip30_conformance.clients.item_coordinator import ItemCoordinator

GROUP = "rebalanced"
_CONFIG = GroupConfig(coalesce_seconds=0, initial_delay_seconds=2.0, rebalance_timeout_seconds=120)


class Members:
    """The members of this process. Each public method is a verb, with words as its arguments."""

    def __init__(self, locator: PluginLocator, count: int) -> None:
        self._locator = locator
        self._count = count
        self._members: list[Member] = []
        # The generation that each member has taken up, and how many items it has; both and the
        # list of members are protected by the lock.
        self._taken: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def start(self, number: str) -> None:
        """Start *number* members, and print when that began."""
        added = [Member(self) for _ in range(int(number))]
        with self._lock:
            self._members += added
        print_line("began", time.monotonic_ns())
        for one in added:
            one.start()

    def leave(self) -> None:
        """Make the newest member leave, and print when that began."""
        with self._lock:
            gone = self._members.pop()
            self._taken.pop(gone.member_id, None)
        print_line("began", time.monotonic_ns())
        gone.leave()

    def coordinator(self) -> tuple[PluginLocator, int]:
        """Return the arguments of each member."""
        return self._locator, self._count

    def take(self, member_id: str, generation: int, items: int) -> None:
        """Note that a member has taken up a share."""
        moment = time.monotonic_ns()
        with self._lock:
            if not any(one.member_id == member_id for one in self._members):
                return
            self._taken[member_id] = generation, items
            known: Mapping[str, tuple[int, int]] = self._taken
            if len(known) < len(self._members) or {one for one, _ in known.values()} != {
                generation
            }:
                return
            total = sum(items for _, items in known.values())
            leads = any(one.is_leader for one in self._members)
        print_line("took", generation, len(known), total, int(leads), moment)


class Member(ItemCoordinator):
    """A member that reports each share that it takes up."""

    def __init__(self, members: Members) -> None:
        locator, count = members.coordinator()
        super().__init__(locator, GROUP, count=count, config=_CONFIG)
        self._siblings = members

    @override
    def on_join_complete(
        self, generation: int, member_id: str, protocol: str, member_assignment: bytes
    ) -> None:
        super().on_join_complete(generation, member_id, protocol, member_assignment)
        self._siblings.take(member_id, generation, len(self.held))


def main(address: str, namespace: str, session_seconds: str, count: str) -> None:
    with StoreAddress.parse(address).open(namespace, float(session_seconds)) as locator:
        members = Members(locator, int(count))
        verbs: dict[str, Callable[..., None]] = {
            "start": members.start,
            "leave": members.leave,
        }
        print_line("ready")
        for line in sys.stdin:
            verb, *words = line.split()
            verbs[verb](*words)


if __name__ == "__main__":
    main(*sys.argv[1:])
