"""Thousands of calls of one event loop that begin together, in a few steps."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from kip30.aio import AsyncPluginLocator

Calls = Sequence[Coroutine[Any, Any, object]]

_SERVICES = 50
"""Number of services that the candidates divide: stores take thousands of candidates, and not all
take as many leaders of one client."""


def steps(locator: AsyncPluginLocator, number: int) -> Iterator[tuple[str, Calls]]:
    """Yield the name and the *number* calls of each step; all must be done before the next one."""
    group, registry = locator.group_membership("g"), locator.listener_registry()
    storage, every = locator.storage(), range(number)
    elections = [locator.leader_election(f"s{each}") for each in range(_SERVICES)]
    candidates = [(elections[each % _SERVICES], f"c{each}") for each in every]
    yield "joins", [group.join(f"m{each}", "") for each in every]
    yield "listeners", [registry.add_value_change_listener(f"n/k{each}", _ignore) for each in every]
    yield "leaves", [group.leave(f"m{each}") for each in every]
    yield "nominations", [election.nominate(name, "") for election, name in candidates]
    yield "resignations", [election.resign(name) for election, name in candidates]
    yield "puts", [storage.put(f"n/k{each}", "v") for each in every]
    yield "gets", [storage.get(f"n/k{each}") for each in every]
    yield (
        "removals",
        [registry.remove_value_change_listener(f"n/k{each}", _ignore) for each in every],
    )


async def outcomes(calls: Calls) -> list[Any]:
    """Await all *calls*, begun together, and return for each its result or its error."""
    return await asyncio.gather(*calls, return_exceptions=True)


async def _ignore(_change: object) -> None:
    """Ignore the change."""
