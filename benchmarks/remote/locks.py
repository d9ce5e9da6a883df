"""Locks on a server, beside what the raw client does for one.

The raw client creates the record of the leader, under its session, and deletes it; on ZooKeeper
kazoo's lock is measured, too.
"""

from contextlib import ExitStack
from threading import Event
from typing import Any

from benchmarks import locks
from benchmarks.clients.opening import candidate
from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress

_LEAST = {
    "zookeeper": {"kazoo": 0.9},
    "etcd": {"raw": 0.75},
    "consul": {"raw": 0.75},
    "cassandra": {},
}
_CLIENTS = 8
_PATIENCE_SECONDS = 10.0


def measure(address: StoreAddress) -> list[Figure]:
    with ExitStack() as stack:
        locators = [stack.enter_context(address.open("locks")) for _ in range(_CLIENTS)]
        sides = locks.uses(locators[0])
        if address.store != "cassandra":
            sides["raw"] = _of_raw_client(address)
        theirs = _kazoo_locks(stack, address) if address.store == "zookeeper" else []
        if theirs:
            sides["kazoo"] = lambda: (theirs[0].acquire(), theirs[0].release())
        figures = [
            *locks.free(sides, _LEAST[address.store]),
            *locks.handed_over("lock", locks.holds(locators, fair=False)),
            *locks.handed_over("fair lock", locks.holds(locators, fair=True)),
            *locks.longest_wait(locks.holds(locators, fair=True, name="waits")),
        ]
        if theirs:
            figures += locks.handed_over("kazoo", [_held_by(one) for one in theirs])
        return figures


def _of_raw_client(address: StoreAddress) -> locks.Use:
    elected = Event()
    one = candidate("raw", address, elected.set)

    def use() -> None:
        elected.clear()
        one.campaign()
        assert elected.wait(_PATIENCE_SECONDS)
        one.resign()

    return use


def _kazoo_locks(stack: ExitStack, address: StoreAddress) -> list[Any]:
    from benchmarks.clients.zookeeper import connected  # noqa: PLC0415  only there

    clients = [connected(address) for _ in range(_CLIENTS)]
    for client in clients:
        stack.callback(client.stop)
    return [client.Lock("/kazoo-lock") for client in clients]


def _held_by(lock: Any) -> locks.Hold:
    """Return a contender with a lock object of its own each time, for a thread of its own."""
    client, path = lock.client, lock.path

    def hold() -> locks.Use:
        one = client.Lock(path)
        one.acquire()
        released: locks.Use = one.release
        return released

    return hold
