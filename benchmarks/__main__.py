"""Measure: ``python -m benchmarks [--only NAME] [--json FILE] [--plot FILE]``."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import events, failover, group, handover, idle, machine, start, storage
from benchmarks.figure import Figure
from benchmarks.plot import plot
from benchmarks.report import Results, merge, read, table

SUBJECTS: dict[str, Callable[[], list[Figure]]] = {
    "storage": storage.measure,
    "group": group.measure,
    "event": events.measure,
    "failover": failover.measure,
    "idle": idle.measure,
    "start": start.measure,
    "runner": handover.measure,
}


def main() -> int:
    """Return 1 if a target was missed."""
    options = _options()
    results = read(options.json) if options.show else _measured(options)
    print(table(results))
    if options.plot:
        plot(options.plot, read(options.json) if options.json else results)
    return int(any(figure.met is False for one in results for figure in one.figures))


def _measured(options: argparse.Namespace) -> list[Results]:
    results: list[Results] = []
    for name in options.only or SUBJECTS:
        print(f"measuring: {name}", file=sys.stderr)
        before = machine.load()
        figures = SUBJECTS[name]()
        results.append(Results(name, (before, machine.load()), figures))
        if options.json:
            merge(options.json, machine.description(), results[-1])
    return results


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=SUBJECTS, help="may be repeated")
    parser.add_argument("--json", type=Path, help="keep the results; adds to a file that is there")
    parser.add_argument("--plot", type=Path, help="draw them; all those in the JSON file, if named")
    parser.add_argument("--show", action="store_true", help="measure nothing, show the JSON file")
    options = parser.parse_args()
    if options.show and not options.json:
        parser.error("--show needs --json FILE")
    return options


if __name__ == "__main__":
    sys.exit(main())
