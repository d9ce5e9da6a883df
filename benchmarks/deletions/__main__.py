"""Measure whether a namespace and a group stay usable, and as fast, after many deletions.

``python -m benchmarks.deletions --cycles N --leaves N`` puts and deletes N keys of
one namespace, while N members join and leave one group, and checks both about twenty times on the
way. It returns 1 if a check failed or a latency grew too much.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.clients.cassandra import Client
from benchmarks.deletions.checkpoint import Checkpoint, Churned, summary
from benchmarks.deletions.checks import GROUP, NAMESPACE, Checks
from benchmarks.deletions.member_churn import patient
from benchmarks.processes import started
from benchmarks.store_address import StoreAddress, scratch
from benchmarks.timing import seconds_of
from kip30 import Kip30Error, PluginLocator, Storage
from kip30_conformance.servers import Ensemble, start

_BATCH = 400
_DELETING = 200
_WARM_UP = 200
_ROOT = "deletions"
_START_SECONDS = 120.0
_JAVA = {"_JAVA_OPTIONS": "-Xmx1g -XX:TieredStopAtLevel=4"}
"""This wins over the options of the tests' servers, which are to start quickly."""
_STEPS = 20
_FEWER = 10
"""By this factor there are fewer samples at the checkpoints between the first and the last."""
_SCANNED = "SELECT * FROM system_views.tombstones_per_read"

Sample = Callable[[int], object]


class Run:
    """One server, two clients that churn, and two that check.

    Attributes:
        done: The cycles and leaves so far.
    """

    def __init__(self, servers: Ensemble, log: Path, stack: ExitStack) -> None:
        self._client = stack.enter_context(_started(servers.settings()))
        watching = stack.enter_context(_started(servers.settings()))
        link = stack.enter_context(servers.link())
        self._checks = Checks(watching, stack.enter_context(_started(link.settings())), link)
        self._pool = stack.enter_context(ThreadPoolExecutor(_DELETING))
        address = StoreAddress.of(servers.settings())
        self._leaver = stack.enter_context(
            started("benchmarks.deletions.member_churn", address.location, _ROOT, GROUP)
        )
        self._leaver.expect("ready")
        self._raw = stack.enter_context(closing(Client(address)))
        self._log = log
        self._storage: Storage[str] = self._client.storage()
        self.done = Churned(cycles=0, leaves=0)
        # Of the checkpoint that is next: two may have the same numbers done.
        self._number = 0
        _alternated(self._cycle("warm-up"), self._attend("warm-up"), _WARM_UP)

    def checkpoint(self, goal: Churned, seconds: int, samples: int) -> Checkpoint:
        """Churn until *goal* is reached or *seconds* are over, then check and measure."""
        per_second = self._churn(goal, seconds)
        self._number += 1
        fresh = f"fresh-{self._number}"
        keys = _alternated(self._cycle(NAMESPACE), self._cycle(fresh), samples)
        members = _alternated(self._attend(GROUP), self._attend(fresh), samples)
        heard, failures = self._checks.run(f"{self.done.cycles:09}-{self._number}")
        return Checkpoint(
            **self.done._asdict(),
            cycles_per_second=per_second[0],
            leaves_per_second=per_second[1],
            put_delete_ms=keys,
            join_leave_ms=members,
            list_ms=_alternated(self._list(NAMESPACE), self._list(fresh), max(1, samples // 10)),
            heard_after_seconds=heard,
            tombstones_of_a_read=self._scanned(),
            warnings=self._log.read_text(errors="replace").count("tombstone_warn_threshold"),
            failures=failures,
        )

    def _churn(self, goal: Churned, seconds: int) -> tuple[float, float]:
        """Cycle keys here, while another process cycles members; return both rates per second."""
        done, began = self.done, time.monotonic()
        self._leaver.send(f"{done.leaves} {goal.leaves} {seconds}")
        cycles = done.cycles
        while cycles < goal.cycles and time.monotonic() < began + seconds:
            numbers = range(cycles, min(cycles + _BATCH, goal.cycles))
            names = [f"{NAMESPACE}/{one:09}" for one in numbers]
            self._storage.put_many(dict.fromkeys(names, "job"))
            list(self._pool.map(self._storage.delete, names))
            cycles = numbers.stop
        _, left = self._leaver.expect("left")
        took = time.monotonic() - began
        self.done = Churned(cycles, done.leaves + int(left))
        return (cycles - done.cycles) / took, int(left) / took

    def _cycle(self, namespace: str) -> Sample:
        prefix = f"{namespace}/{self.done.cycles:09}"

        def cycle(number: int) -> None:
            self._storage.put(f"{prefix}-{number:05}", "job")
            self._storage.delete(f"{prefix}-{number:05}")

        return cycle

    def _list(self, namespace: str) -> Sample:
        return lambda _: list(self._storage.list(namespace))

    def _attend(self, name: str) -> Sample:
        group, prefix = self._client.group_membership(name), f"{self.done.leaves:09}"

        def attend(number: int) -> None:
            group.join(f"{prefix}-{number:05}", "")
            group.leave(f"{prefix}-{number:05}")

        return attend

    def _scanned(self) -> dict[str, float]:
        """Return, for each table, the largest number of tombstones that a recent read met."""
        rows = [row for row in self._raw.query(_SCANNED) if row["keyspace_name"] == "kip30"]
        return {row["table_name"]: row["max"] for row in rows if row["count"]}


def _alternated(old: Sample, fresh: Sample, samples: int) -> tuple[float, float]:
    """Return the medians of both in milliseconds. Other load of the machine slows both alike."""
    took: dict[Sample, list[float]] = {old: [], fresh: []}
    for number in range(samples):
        for sample in (old, fresh) if number % 2 else (fresh, old):
            took[sample].append(1000 * seconds_of(partial(sample, number)))
    return median(took[old]), median(took[fresh])


def _started(settings: dict[str, str]) -> PluginLocator:
    return PluginLocator().startup(patient(settings, _ROOT))


def main() -> int:
    """Return 1 if anything did not hold."""
    options = _options()
    with scratch(options.folder) as folder:
        result = _measured(options, folder)
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({key: one for key, one in result.items() if key != "checkpoints"}, indent=1))
    return int(not result["holds"])


def _measured(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    goal, seconds = Churned(options.cycles, options.leaves), round(60 * options.minutes)
    checkpoints, broken = list[Checkpoint](), list[str]()
    servers = start(
        "cassandra",
        folder=folder,
        extra=options.setting,
        environment=_JAVA,
        within=_START_SECONDS,
    )
    with servers, ExitStack() as stack:
        run = Run(servers, folder / "node0" / "log", stack)
        try:
            for one in _checkpoints(run, goal, seconds, options.samples):
                print(one.line, flush=True)
                checkpoints.append(one)
        except Kip30Error as error:
            broken.append(f"{type(error).__name__}: {error}")
    return summary(checkpoints, broken)


def _checkpoints(run: Run, goal: Churned, seconds: int, samples: int) -> Iterator[Checkpoint]:
    """Yield about twenty on the way to *goal*, and one when it is reached or time is over."""
    yield run.checkpoint(Churned(0, 0), 0, samples)
    until = time.monotonic() + seconds
    while run.done != goal and time.monotonic() < until:
        yield run.checkpoint(goal, seconds // _STEPS, samples // _FEWER)
    yield run.checkpoint(run.done, 0, samples)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.deletions", description=__doc__)
    parser.add_argument("--cycles", type=int, default=1_000_000, help="puts and deletes of a key")
    parser.add_argument("--leaves", type=int, default=300_000, help="joins and leaves of a member")
    parser.add_argument("--samples", type=int, default=1_000, help="of latency, first and last")
    parser.add_argument("--minutes", type=float, default=60.0, help="how long at most")
    parser.add_argument("--folder", type=Path, help="where the server's data go for the time")
    parser.add_argument("--setting", action="append", default=[], help="a line of cassandra.yaml")
    parser.add_argument("--out", type=Path, help="a JSON file for all figures")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
