"""The verbs of a peer for coordinators: it takes part in groups and works on items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kip30 import PluginLocator
from kip30_conformance.clients.signal_trap import SignalTrap

if TYPE_CHECKING:  # most peers never take part, and it takes a third of their start to import
    from kip30_conformance.clients.item_coordinator import ItemCoordinator
    from kip30_conformance.clients.item_work import ItemWork


class CoordinatorVerbs:
    """The verbs; each method is one."""

    def __init__(self, locator: PluginLocator) -> None:
        """Take part with *locator*."""
        self._locator = locator
        self._workers: dict[str, ItemWork] = {}
        self._crowd: list[ItemCoordinator] = []

    def take_part(
        self,
        name: str,
        group: str,
        *,
        count: int = 6,
        offer: dict[str, Any] | None = None,
        config: dict[str, Any] | None = None,
    ) -> str:
        """Start a member, which this process calls *name*, and return its member id."""
        from kip30_conformance.clients import item_coordinator  # noqa: PLC0415  see above
        from kip30_conformance.clients.item_work import ItemWork  # noqa: PLC0415  see above

        one = item_coordinator.ItemCoordinator(
            self._locator,
            group,
            count=count,
            offer=item_coordinator.Offer(**(offer or {})),
            config=item_coordinator.quick_config(self._locator, **(config or {})),
        )
        self._workers[name] = ItemWork(one)
        one.start()
        return one.member_id

    def part(self, name: str) -> dict[str, Any]:
        """Return the present state of a member."""
        one = self._workers[name].member
        return {
            "items": sorted(one.works_on()),
            "generation": one.generation.generation,
            "generations": one.generations(),
            "leads": one.is_leader,
            "failure": type(one.failure).__name__ if one.failure is not None else "",
            "calls": one.names(),
        }

    def worked(self, name: str) -> list[list[float]]:
        """Return item, first and last moment of each stretch of work, on the system's boot clock.

        At all of these moments the member could be sure that its share was valid.
        """
        return self._workers[name].stretches()

    def put_guarded(self, name: str, key: str, value: str) -> str:
        """Set *key* of the group's data, and return its new version."""
        return str(self._workers[name].member.storage().set(key, value))

    def request_rejoin(self, name: str) -> None:
        """Request a round."""
        self._workers[name].member.request_rejoin("asked to")

    def set_signal_trap(self, operation: str, **moment: Any) -> None:
        """Kill or stop this process at one of its own requests; see `SignalTrap`."""
        SignalTrap(self._locator.backend, operation, **moment)

    def start_crowd(self, group: str, number: int, *, count: int, config: dict[str, Any]) -> None:
        """Start a number of members, which work on nothing."""
        from kip30_conformance.clients import item_coordinator  # noqa: PLC0415  see above

        settings = item_coordinator.quick_config(self._locator, **config)
        for _ in range(number):
            one = item_coordinator.ItemCoordinator(
                self._locator, group, count=count, config=settings
            )
            self._crowd.append(one)
            one.start()

    def crowd(self) -> dict[str, Any]:
        """Return all items of these members, the size of each share, and all generations."""
        shares = [one.works_on() for one in self._crowd]
        return {
            "items": sorted(item for share in shares for item in share),
            "sizes": [len(share) for share in shares],
            "generations": [one.generations() for one in self._crowd],
            "lead": sum(one.is_leader for one in self._crowd),
        }

    def end_part(self, name: str, *, leave: bool = False) -> None:
        """Close a member, or make it leave for good."""
        worker = self._workers[name]
        worker.stop()
        if leave:
            worker.member.leave("asked to")
        else:
            worker.member.close()
