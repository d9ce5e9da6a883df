"""Pauses of the whole store under many claims: ``python -m benchmarks.recovery [--store NAME]``.

Prints the table of docs/semantics.md, a row as soon as it is measured. Needs the servers that
``docker/install-servers`` installs, and takes some fifteen minutes.
"""

import argparse
import sqlite3
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from typing_extensions import override

from benchmarks.store_address import EMBEDDED, STORES, StoreAddress, add_store_option, scratch
from kip30.config import Written
from kip30_conformance.fault_suites.mixed_claims import (
    MixedClaims,
    Pause,
    allowed_seconds,
    brief,
    long,
    recover,
)
from kip30_conformance.harness import Harness
from kip30_conformance.server_harness import ServerHarness
from kip30_conformance.servers import start

_COUNTS = (10, 100, 1000)
_SESSION_SECONDS = 10.0
_PAUSES: Mapping[str, Pause] = {"shorter": brief, "longer": long}
_TITLE = (
    "| store | claims | pause | fresh start | back after | allowed | lost sessions | threads |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |\n"
)


class EmbeddedHarness(Harness):
    """The embedded store, paused by another program that keeps its database locked."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @override
    def settings(self) -> Mapping[str, Written]:
        return StoreAddress(EMBEDDED, str(self._folder)).settings()

    @contextmanager
    @override
    def frozen(self) -> Iterator[None]:
        file = next(self._folder.rglob("kip30.db"))
        with closing(sqlite3.connect(file, timeout=5, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield


def main() -> int:
    """Return 1 if claims were not back in time, or more than one session was lost."""
    parser = argparse.ArgumentParser(prog="benchmarks.recovery", description=__doc__)
    add_store_option(parser)
    sys.stdout.write(_TITLE)
    are_good = [_is_good(store) for store in parser.parse_args().store or STORES]
    return int(not all(are_good))


def _is_good(store: str) -> bool:
    with _running(store) as harness:
        rows = [_measured(harness, store, n, name) for n in _COUNTS for name in _PAUSES]
    return all(rows)


def _measured(harness: Harness, store: str, count: int, name: str) -> bool:
    timeouts = {
        "plugin.session.timeout.ms": round(_SESSION_SECONDS * 1000),
        "plugin.operation.timeout.ms": round(_SESSION_SECONDS * 500),
    }
    with harness.open(harness.unique_root(), clock=None, **timeouts) as client:
        claims = MixedClaims(client, count, _SESSION_SECONDS)
        done = recover(claims, harness.frozen, _PAUSES[name])
    allowed = allowed_seconds(done, claims, harness)
    sys.stdout.write(
        f"| {store} | {count:,} | {name} | {done.fresh_seconds:.2f} s | {done.back_seconds:.2f} s"
        f" | {allowed:.2f} s | {done.losses} | {done.threads:+d} |\n"
    )
    sys.stdout.flush()
    return done.back_seconds < allowed and done.losses == int(name == "longer")


@contextmanager
def _running(store: str) -> Generator[Harness]:
    if store == EMBEDDED:
        with scratch() as folder:
            yield EmbeddedHarness(folder)
        return
    with start(store) as ensemble:
        yield ServerHarness(ensemble)


if __name__ == "__main__":
    sys.exit(main())
