"""Measure: ``python -m benchmarks [--store NAME] [--only SUBJECT] [--json FILE] …``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import subjects
from benchmarks.report import machine, tables
from benchmarks.report.plot import plot
from benchmarks.report.results import Results, merge, read
from benchmarks.store_address import STORES, add_store_option


def main() -> int:
    """Return 1 if a target was missed."""
    options = _options()
    measured = [] if options.show else _measured(options)
    results = read(options.json) if options.json else measured
    parts = tables.parts(results)
    print("\n\n".join(parts.values()))
    if options.page:
        options.page.write_text(tables.fill(options.page.read_text(), parts))
    if options.plot:
        plot(options.plot, results)
    asked = results if options.show else measured
    return int(any(figure.met is False for one in asked for figure in one.figures))


def _measured(options: argparse.Namespace) -> list[Results]:
    return [one for store in options.store or STORES for one in _measured_of(store, options)]


def _measured_of(store: str, options: argparse.Namespace) -> Sequence[Results]:
    results: list[Results] = []
    with subjects.of(store, options.rows) as measures:
        for name in options.only or measures:
            print(f"measuring: {store}, {name}", file=sys.stderr)
            before = machine.load()
            figures = measures[name]()
            results.append(Results(store, name, (before, machine.load()), figures))
            if options.json:
                merge(options.json, machine.description(), results[-1])
    return results


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    add_store_option(parser)
    parser.add_argument("--only", action="append", metavar="SUBJECT", help="may be repeated")
    parser.add_argument(
        "--rows",
        type=int,
        help="rows that scan reads, and the largest size of growth and rebalance",
    )
    parser.add_argument("--json", type=Path, help="keep the results; adds to a file that is there")
    parser.add_argument("--plot", type=Path, help="draw the results, all of --json if there is one")
    parser.add_argument("--page", type=Path, help="put the tables of the same into this page")
    parser.add_argument("--show", action="store_true", help="measure nothing, show the JSON file")
    options = parser.parse_args()
    if options.show and not options.json:
        parser.error("--show needs --json FILE")
    for store in options.store or STORES:
        if unknown := set(options.only or ()) - set(subjects.names(store)):
            known = ", ".join(subjects.names(store))
            parser.error(f"{store} has no {', '.join(unknown)}; there are {known}")
    return options


if __name__ == "__main__":
    sys.exit(main())
