"""Locks: acquiring and releasing a free one, passing one on, and waiting for a fair one.

On the embedded store the raw side is what any lock of a file of SQLite needs: a transaction that
writes the holder, synced to the disk, and one that deletes it.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

from benchmarks.report.figure import Figure, middle
from benchmarks.store_address import StoreAddress
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
_LEAST = 0.6


def measure(address: StoreAddress) -> list[Figure]:
    with ExitStack() as stack:
        locators = [stack.enter_context(address.open()) for _ in range(_CLIENTS)]
        sides = uses(locators[0]) | {"raw": _of_sqlite(address.directory, stack)}
        return [
            *free(sides, {"raw": _LEAST}),
            *handed_over("lock", holds(locators, fair=False)),
            *handed_over("fair lock", holds(locators, fair=True)),
            *longest_wait(holds(locators, fair=True, name="waits")),
        ]


def uses(locator: PluginLocator) -> dict[str, Use]:
    """Return the use of a lock of each kind."""
    plain, fair = Lock(locator, "any order"), Lock(locator, "fair", fair=True)
    return {
        "lock": lambda: plain.acquire().release(),
        "fair lock": lambda: fair.acquire().release(),
    }


def holds(locators: list[PluginLocator], *, fair: bool, name: str = "passed on") -> list[Hold]:
    """Return a contender of each client."""
    locks = [Lock(one, f"{name} {fair}", fair=fair) for one in locators]
    return [lambda lock=lock: lock.acquire().release for lock in locks]  # type: ignore[misc]


def free(sides: Mapping[str, Use], least: Mapping[str, float]) -> list[Figure]:
    """Use each side in turn, so that none has the quiet moments; *least* bounds the ratios."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(_WARM_UP + ROUNDS):
        for name, use in sides.items():
            began = time.perf_counter()
            use()
            if number >= _WARM_UP:
                times[name].append((time.perf_counter() - began) * 1e3)
    medians = {name: middle(one) for name, one in times.items()}
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


def handed_over(name: str, contenders: list[Hold]) -> list[Figure]:
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


def longest_wait(contenders: list[Hold]) -> list[Figure]:
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


def _of_sqlite(folder: Path, stack: ExitStack) -> Use:
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    stack.callback(connection.close)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE held (name TEXT PRIMARY KEY, holder TEXT) WITHOUT ROWID")

    def use() -> None:
        connection.execute("INSERT INTO held VALUES ('lock', 'me')")
        connection.execute("DELETE FROM held WHERE name = 'lock'")

    return use
