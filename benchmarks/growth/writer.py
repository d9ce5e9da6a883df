"""The process that writes, so that the CPU of the listening process is that of listening.

``python -m benchmarks.growth.writer SPOT NAMESPACE KIND N`` says ``ready``, and changes something
at each line of input.
"""

import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

from benchmarks.growth.spot import Spot
from benchmarks.library import VALUE
from benchmarks.processes import Child, role
from benchmarks.roles import say
from kip30 import GroupMembership, PluginLocator, Storage

PLACE = "grown"
"""The namespace and the group that grow."""

_BATCH = 500
_JOINING = 8

Change = Callable[[], object]


def writing(spot: Spot, namespace: str, kind: str, size: int) -> Child:
    """Start the process."""
    return role(str(spot), namespace, kind, size, module="benchmarks.growth.writer")


def fill(storage: Storage[str], size: int) -> None:
    """Create *size* keys."""
    for begin in range(0, size, _BATCH):
        some = range(begin, min(begin + _BATCH, size))
        storage.put_many({key(number): VALUE for number in some})


def join(group: GroupMembership[str], size: int, spot: Spot) -> None:
    """Let *size* members join."""
    ids = [f"member-{number:06}" for number in range(size)]
    with ThreadPoolExecutor(1 if spot.embedded else _JOINING) as pool:
        for joined in [pool.submit(group.join, one, VALUE) for one in ids]:
            joined.result()


def key(number: int) -> str:
    return f"{PLACE}/{number:06}"


def _members(spot: Spot, locator: PluginLocator, size: int) -> Iterable[Change]:
    group = locator.group_membership(PLACE)
    join(group, size, spot)
    return cycle([lambda: group.join("one-more", VALUE), lambda: group.leave("one-more")])


def _keys(_: Spot, locator: PluginLocator, size: int) -> Iterable[Change]:
    storage, one = locator.storage(), f"{PLACE}/one-more"
    fill(storage, size)
    return cycle([lambda: storage.put(one, VALUE), lambda: storage.delete(one)])


def _values(_: Spot, locator: PluginLocator, size: int) -> Iterable[Change]:
    storage = locator.storage()
    fill(storage, size)
    return cycle([lambda: storage.update(key(0), VALUE), lambda: storage.update(key(0), "")])


_KINDS = {"members": _members, "keys": _keys, "values": _values}


def main(spot: str, namespace: str, kind: str, size: str) -> None:
    """Say when each change began."""
    where = Spot.parse(spot)
    with where.started(namespace) as locator:
        changes = _KINDS[kind](where, locator, int(size))
        say("ready")
        for _, change in zip(sys.stdin, changes, strict=False):
            began = time.monotonic_ns()
            change()
            say("changed", began)


if __name__ == "__main__":
    main(*sys.argv[1:])
