"""Measure: ``python -m benchmarks [--store NAME] [--only SUBJECT] [--json FILE] [--plot FILE]``."""

import argparse
import sys
from pathlib import Path

from benchmarks import machine, subjects
from benchmarks.plot import plot
from benchmarks.report import Results, merge, read, table


def main() -> int:
    """Return 1 if a target was missed."""
    options = _options()
    results = _kept(options) if options.show else _measured(options)
    print(table(results))
    if options.plot:
        plot(options.plot, _kept(options) if options.json else results)
    return int(any(figure.met is False for one in results for figure in one.figures))


def _measured(options: argparse.Namespace) -> list[Results]:
    results: list[Results] = []
    with subjects.of(options.store) as measures:
        for name in options.only or measures:
            print(f"measuring: {options.store}, {name}", file=sys.stderr)
            before = machine.load()
            figures = measures[name]()
            results.append(Results(options.store, name, (before, machine.load()), figures))
            if options.json:
                merge(options.json, machine.description(), results[-1])
    return results


def _kept(options: argparse.Namespace) -> list[Results]:
    return [one for one in read(options.json) if one.store == options.store]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("--store", choices=subjects.STORES, default=subjects.EMBEDDED)
    parser.add_argument("--only", action="append", metavar="SUBJECT", help="may be repeated")
    parser.add_argument("--json", type=Path, help="keep the results; adds to a file that is there")
    parser.add_argument("--plot", type=Path, help="draw them; all of the store in --json, if named")
    parser.add_argument("--show", action="store_true", help="measure nothing, show the JSON file")
    options = parser.parse_args()
    if options.show and not options.json:
        parser.error("--show needs --json FILE")
    if unknown := set(options.only or ()) - set(subjects.names(options.store)):
        known = ", ".join(subjects.names(options.store))
        parser.error(f"no such subject: {', '.join(unknown)}; there are {known}")
    return options


if __name__ == "__main__":
    sys.exit(main())
