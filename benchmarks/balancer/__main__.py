"""Measure whom HAProxy sends requests to: ``python -m benchmarks.balancer [--store NAME] …``.

Prints the tables of docs/health.md. A hundred failovers take some fifteen minutes; servers are
those that ``docker/install-servers`` installs. It returns 1 if the store has accepted a write of a
leader after one of a later leader.
"""

import argparse
import json
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles

from benchmarks.balancer.failovers import Failover, Outcome, fail_over
from benchmarks.balancer.haproxy import Checks
from benchmarks.balancer.machines import CAUSES
from benchmarks.report import machine
from benchmarks.store_address import EMBEDDED, STORES, StoreAddress, scratch
from kip30_conformance.report.markdown import item, table
from kip30_conformance.servers import start

SESSION_SECONDS = 10.0
_TIMES: Mapping[str, Callable[[Failover], float]] = {
    "from the end of the former leader": lambda one: one.until_elected,
    "HAProxy finds it up": lambda one: one.until_up,
    "its program listens": lambda one: one.until_ready,
    "the first request reaches it": lambda one: one.until_served,
    "the last request reaches the former leader": lambda one: one.former_served,
    "no write, from before the election": lambda one: one.outage,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.balancer", description=__doc__)
    parser.add_argument("--store", choices=STORES, default=EMBEDDED)
    parser.add_argument("--failovers", type=int, default=100, metavar="N")
    parser.add_argument(
        "--cause", action="append", choices=CAUSES, help="may be repeated; else all"
    )
    parser.add_argument(
        "--check-program", action="store_true", help="the second configuration of docs/health.md"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what was seen")
    options = parser.parse_args()
    before = machine.load()
    with scratch() as folder, _settings(options.store) as settings:
        outcome = fail_over(
            settings,
            folder,
            options.failovers,
            causes=options.cause or CAUSES,
            checks=Checks(of_program=options.check_program),
        )
    if options.json:
        failovers = [one._asdict() for one in outcome.failovers]
        options.json.write_text(json.dumps({**outcome._asdict(), "failovers": failovers}, indent=1))
    sys.stdout.write(_report(options.store, outcome))
    sys.stdout.write(item(f"load: {before:.1f}-{machine.load():.1f}"))
    return int(bool(outcome.late_writes))


@contextmanager
def _settings(store: str) -> Generator[dict[str, str]]:
    timeout = {"plugin.session.timeout.ms": f"{SESSION_SECONDS * 1000:.0f}"}
    if store == EMBEDDED:
        with scratch() as folder:
            yield StoreAddress(store, str(folder)).settings() | timeout
        return
    with start(store) as ensemble:
        yield StoreAddress.of(ensemble.settings()).settings() | timeout


def _report(store: str, outcome: Outcome) -> str:
    found = outcome.failovers
    by_cause = {cause: [one for one in found if one.cause == cause] for cause in _causes(found)}
    causes = [f"{cause} ({len(those)})" for cause, those in by_cause.items()]
    counts = {
        "terms": outcome.terms,
        "requests that reached a leader": sum(outcome.answers.values()),
        "writes accepted": sum(outcome.writes.values()),
        "writes accepted after one of a newer epoch": len(outcome.late_writes),
        **{f"requests, {status}": n for status, n in sorted(outcome.statuses.items(), key=str)},
    }
    return "\n".join(
        (
            f"{len(found)} failovers on {store}; seconds from the election of the next leader:\n",
            table(
                ("until", "median", "99 %", "most"),
                [(name, *_spread(map(time, found))) for name, time in _TIMES.items()],
            ),
            "\nBy cause, the median and the most:\n",
            table(
                ("until", *causes),
                [
                    (name, *(_middle_and_most(map(time, those)) for those in by_cause.values()))
                    for name, time in _TIMES.items()
                ],
            ),
            "",
            "".join(item(f"{name}: {count}") for name, count in counts.items()),
        )
    )


def _causes(failovers: Sequence[Failover]) -> list[str]:
    return list(dict.fromkeys(one.cause for one in failovers))


def _spread(times: Iterable[float]) -> tuple[str, str, str]:
    samples = [*times]
    high = quantiles(samples, n=100, method="inclusive")[98] if len(samples) > 1 else samples[0]
    return f"{median(samples):.2f}", f"{high:.2f}", f"{max(samples):.2f}"


def _middle_and_most(times: Iterable[float]) -> str:
    samples = [*times]
    return f"{median(samples):.2f}, {max(samples):.2f}"


if __name__ == "__main__":
    sys.exit(main())
