"""Members of groups in one process: started, or polled by the check itself; closed at its end."""

from contextlib import ExitStack
from typing import Any

from kip30 import PluginLocator
from kip30_conformance.clients.item_coordinator import (
    ItemCoordinator,
    Offer,
    are_shared,
    quick_config,
)
from kip30_conformance.polling import eventually


class MemberFactory:
    """Makes members, all of which are closed in the end, the newest first."""

    def __init__(self, ends: ExitStack) -> None:
        """Close them with *ends*."""
        self._ends = ends

    def polled(
        self,
        client: PluginLocator,
        group: str = "g",
        *,
        count: int = 6,
        config: dict[str, Any] | None = None,
        **offer: Any,
    ) -> ItemCoordinator:
        """Return a member that takes part only while the check polls it."""
        one = ItemCoordinator(
            client,
            group,
            count=count,
            offer=Offer(**offer),
            config=quick_config(client, **(config or {})),
        )
        self._ends.callback(one.close)
        return one

    def started(self, client: PluginLocator, group: str = "g", **more: Any) -> ItemCoordinator:
        """Return a member that polls on a thread of its own; arguments as those of `polled`."""
        one = self.polled(client, group, **more)
        one.start()
        return one


def poll_until_shared(polled: ItemCoordinator, *others: ItemCoordinator) -> None:
    """Poll a member until all items are shared evenly by it and *others*."""

    def has_come() -> bool:
        polled.poll(0.05)
        return are_shared((polled, *others))

    eventually(has_come, within=30, what="all items are shared evenly")


def poll_until_called(polled: ItemCoordinator, name: str, times: int) -> None:
    """Poll a member step by step, and stop once its method *name* was called that often."""

    def has_come() -> bool:
        polled.poll()
        return polled.names().count(name) >= times

    eventually(has_come, within=30, what=f"{name} was called")


def poll_until_generation(polled: ItemCoordinator, other: ItemCoordinator, number: int) -> None:
    """Poll a member step by step, and stop once *other* has taken up generation *number*."""

    def has_come() -> bool:
        polled.poll()
        return other.generation.generation >= number

    eventually(has_come, within=30, what=f"generation {number}")
