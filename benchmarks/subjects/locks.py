"""Locks: acquiring and releasing a free one, passing one on, and waiting for a fair one.

The raw client of a server creates the record of the leader, under its session, and deletes it; on
ZooKeeper kazoo's lock is measured, too. On the embedded store the raw side is what any lock of a
file of SQLite needs: a transaction that writes the holder, synced to the disk, and one that deletes
it.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.clients.opening import candidate
from benchmarks.report.figure import Figure, middle
from benchmarks.store_address import StoreAddress
from benchmarks.timing import in_turn
from kip30 import PluginLocator
from kip30.recipes import Lock

Use = Callable[[], object]
"""Acquires and releases a lock once."""

Hold = Callable[[], Use]
"""Acquires a lock, and returns the call that releases it."""

ROUNDS = 200
WAITERS = (2, 20, 200)
_WARM_UP = 10
_CLIENTS = 8
_HAND_OVERS = 60
_CYCLES = 40
_SETTLE_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0
_LEAST = {
    "embedded": {"raw": 0.6},
    "zookeeper": {"kazoo": 0.9},
    "etcd": {"raw": 0.75},
    "consul": {"raw": 0.75},
    "cassandra": {},
}


def measure(address: StoreAddress) -> list[Figure]:
    with ExitStack() as stack:
        locators = [stack.enter_context(address.open("locks")) for _ in range(_CLIENTS)]
        sides = _uses(locators[0])
        if raw := _raw_use(address, stack):
            sides["raw"] = raw
        kazoo = _kazoo_locks(stack, address) if address.store == "zookeeper" else []
        if kazoo:
            sides["kazoo"] = lambda: (kazoo[0].acquire(), kazoo[0].release())
        return [
            *_free(sides, _LEAST[address.store]),
            *_handed_over("lock", _holds(locators, fair=False)),
            *_handed_over("fair lock", _holds(locators, fair=True)),
            *_longest_wait(_holds(locators, fair=True, name="waits")),
            *(_handed_over("kazoo", [_held_by(one) for one in kazoo]) if kazoo else []),
        ]


def _uses(locator: PluginLocator) -> dict[str, Use]:
    """Return the use of a lock of each kind."""
    plain, fair = Lock(locator, "any order"), Lock(locator, "fair", fair=True)
    return {
        "lock": lambda: plain.acquire().release(),
        "fair lock": lambda: fair.acquire().release(),
    }


def _holds(locators: list[PluginLocator], *, fair: bool, name: str = "passed on") -> list[Hold]:
    """Return a contender of each client."""
    locks = [Lock(one, f"{name} {fair}", fair=fair) for one in locators]
    return [lambda lock=lock: lock.acquire().release for lock in locks]  # type: ignore[misc]


def _free(sides: Mapping[str, Use], least: Mapping[str, float]) -> list[Figure]:
    """Use each side in turn; *least* bounds the ratios."""
    in_turn(sides, _WARM_UP)
    medians = {name: middle(one) * 1e3 for name, one in in_turn(sides, ROUNDS).items()}
    ratios = [
        Figure(
            name=f"acquire and release: speed over that of {other}",
            value=medians[other] / medians["lock"],
            unit="x",
            at_least=least.get(other),
        )
        for other in ("kazoo", "raw")
        if other in medians
    ]
    return ratios + [
        _milliseconds(f"acquire and release, {name}", value) for name, value in medians.items()
    ]


def _handed_over(name: str, contenders: list[Hold]) -> list[Figure]:
    """Pass a lock on among threads of the clients: from a release to the next one's acquiring."""
    return [
        _milliseconds(
            f"release to the next holder, {waiters} waiting, {name}",
            middle(_hand_overs(contenders, waiters)) * 1e3,
        )
        for waiters in WAITERS
    ]


def _hand_overs(contenders: list[Hold], waiters: int) -> list[float]:
    """Let *waiters* wait, and then each hold it once or more often; return the seconds between."""
    moments = list[tuple[float, float]]()
    times = max(1, _HAND_OVERS // waiters)

    def wait(number: int) -> None:
        for _ in range(times):
            release = contenders[number % len(contenders)]()
            acquired = time.perf_counter()
            moments.append((acquired, time.perf_counter()))
            release()

    with ThreadPoolExecutor(waiters) as pool:
        release = contenders[0]()
        waiting = [pool.submit(wait, number) for number in range(waiters)]
        time.sleep(_SETTLE_SECONDS)
        release()
        for one in waiting:
            one.result()
    return [acquired - released for (_, released), (acquired, _) in pairwise(moments)]


def _longest_wait(contenders: list[Hold]) -> list[Figure]:
    """Let each of the clients hold a fair lock again and again; compare the waits with a cycle."""
    waits = list[float]()
    start = threading.Barrier(len(contenders) + 1)

    def cycle(acquire: Hold) -> None:
        acquire()()
        start.wait()
        for _ in range(_CYCLES):
            began = time.perf_counter()
            release = acquire()
            waits.append(time.perf_counter() - began)
            release()

    with ThreadPoolExecutor(len(contenders)) as pool:
        running = [pool.submit(cycle, one) for one in contenders]
        start.wait()
        began = time.perf_counter()
        for one in running:
            one.result()
        mean = (time.perf_counter() - began) / _CYCLES
    return [
        _milliseconds(f"mean cycle of {len(contenders)} that hold a fair lock", mean * 1e3),
        Figure(
            name="longest wait for a fair lock, in mean cycles",
            value=max(waits) / mean,
            unit="x",
        ),
    ]


def _milliseconds(name: str, value: float) -> Figure:
    return Figure(name=name, value=value, unit="ms")


def _raw_use(address: StoreAddress, stack: ExitStack) -> Use | None:
    """Return the use of what the client of the store alone does for a lock."""
    if address.is_embedded:
        return _use_of_sqlite(address.directory, stack)
    return None if address.store == "cassandra" else _use_of_candidate(address)


def _use_of_candidate(address: StoreAddress) -> Use:
    elected = threading.Event()
    one = candidate("raw", address, elected.set)

    def use() -> None:
        elected.clear()
        one.campaign()
        assert elected.wait(_PATIENCE_SECONDS)
        one.resign()

    return use


def _use_of_sqlite(folder: Path, stack: ExitStack) -> Use:
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    stack.callback(connection.close)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE held (name TEXT PRIMARY KEY, holder TEXT) WITHOUT ROWID")

    def use() -> None:
        connection.execute("INSERT INTO held VALUES ('lock', 'me')")
        connection.execute("DELETE FROM held WHERE name = 'lock'")

    return use


def _kazoo_locks(stack: ExitStack, address: StoreAddress) -> list[Any]:
    from benchmarks.clients.zookeeper import connected  # noqa: PLC0415  only there

    clients = [connected(address) for _ in range(_CLIENTS)]
    for client in clients:
        stack.callback(client.stop)
    return [client.Lock("/kazoo-lock") for client in clients]


def _held_by(lock: Any) -> Hold:
    """Return a contender with a lock object of its own each time, for a thread of its own."""
    client, path = lock.client, lock.path

    def hold() -> Use:
        one = client.Lock(path)
        one.acquire()
        released: Use = one.release
        return released

    return hold
