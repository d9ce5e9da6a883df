"""The process that writes, so that the CPU of the listening process is that of listening.

``python -m benchmarks.growth.writer ADDRESS NAMESPACE KIND N`` prints ``ready``, and changes
something at each line of input.
"""

import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle

from benchmarks.clients.library import VALUE
from benchmarks.processes import Child, print_line, started
from benchmarks.store_address import StoreAddress
from kip30 import GroupMembership, PluginLocator, Storage

GROWN = "grown"
"""The namespace and the group that grow."""

_BATCH = 500
_JOINING = 8

Change = Callable[[], object]


def writing(address: StoreAddress, namespace: str, kind: str, size: int) -> Child:
    """Start the process."""
    return started("benchmarks.growth.writer", address, namespace, kind, size)


def fill(storage: Storage[str], size: int) -> None:
    """Create *size* keys."""
    for begin in range(0, size, _BATCH):
        some = range(begin, min(begin + _BATCH, size))
        storage.put_many({key(number): VALUE for number in some})


def join(group: GroupMembership[str], size: int, address: StoreAddress) -> None:
    """Let *size* members join."""
    ids = [f"member-{number:06}" for number in range(size)]
    with ThreadPoolExecutor(1 if address.is_embedded else _JOINING) as pool:
        for joined in [pool.submit(group.join, one, VALUE) for one in ids]:
            joined.result()


def key(number: int) -> str:
    return f"{GROWN}/{number:06}"


def _members(address: StoreAddress, locator: PluginLocator, size: int) -> Iterable[Change]:
    group = locator.group_membership(GROWN)
    join(group, size, address)
    return cycle([lambda: group.join("one-more", VALUE), lambda: group.leave("one-more")])


def _keys(_: StoreAddress, locator: PluginLocator, size: int) -> Iterable[Change]:
    storage, one = locator.storage(), f"{GROWN}/one-more"
    fill(storage, size)
    return cycle([lambda: storage.put(one, VALUE), lambda: storage.delete(one)])


def _values(_: StoreAddress, locator: PluginLocator, size: int) -> Iterable[Change]:
    storage = locator.storage()
    fill(storage, size)
    return cycle([lambda: storage.update(key(0), VALUE), lambda: storage.update(key(0), "")])


_KINDS = {"members": _members, "keys": _keys, "values": _values}


def main(address: str, namespace: str, kind: str, size: str) -> None:
    """Print when each change began."""
    where = StoreAddress.parse(address)
    with where.open(namespace) as locator:
        changes = _KINDS[kind](where, locator, int(size))
        print_line("ready")
        for _, change in zip(sys.stdin, changes, strict=False):
            began = time.monotonic_ns()
            change()
            print_line("changed", began)


if __name__ == "__main__":
    main(*sys.argv[1:])
