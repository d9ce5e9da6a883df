"""``kip30 terms``: the latest terms of a service, or the directives for it."""

from collections.abc import Iterable, Sequence
from typing import Any

import click

from kip30.cli import _output
from kip30.cli._exit_codes import Status
from kip30.cli._failures import say
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.operations import read_directives, read_past_terms
from kip30.runtime.directives import LoggedDirective
from kip30.runtime.past_terms import PastTerm

_TITLES = ("EPOCH", "CANDIDATE", "FROM", "TO", "ENDED")
_DIRECTIVE_TITLES = ("NUMBER", "AT", "BY", "DIRECTIVE")


@click.command("terms")
@click.argument("service")
@click.option(
    "--directives", "of_directives", is_flag=True, help="Print what operators asked instead."
)
@_output.prints_records
@opens_store
def command(choice: StoreChoice, service: str, *, of_directives: bool, output: Output) -> int:
    """Print the latest terms of SERVICE, the oldest first.

    A line is the epoch, the leader, from when to when it led by its own clock, and why its term
    ended; "-" is the end of a term that lasts. If its leader could not note the end, as after
    `kill -9`, the beginning of the next term is shown as the end. Leaders note the last 20 terms
    whose setting plugin.operations is true, as by default for `kip30 run`. Exits with 1 if there
    are none.

    With --directives a line is a number, when, which operator, and what was asked: the last 20
    actions of `kip30 pause`, `resume`, `step-down` and `hand-over`.
    """
    with choice.open() as locator:
        if of_directives:
            log = read_directives(locator, service).directives.log
            output.table(_DIRECTIVE_TITLES, map(_directive_row, log), _records(service, log))
            return _status(log, f"no directive for {service!r} is noted", output)
        terms = read_past_terms(locator, service)
    output.table(_TITLES, map(_row, terms), _records(service, terms))
    nothing = (
        f"no term of {service!r} is noted: leaders note theirs if plugin.operations is true, as by"
        " default for `kip30 run`"
    )
    return _status(terms, nothing, output)


def _status(found: Sequence[object], nothing: str, output: Output) -> int:
    if found:
        return Status.OK
    if not output.is_objects:
        say(f"{nothing} — `kip30 services` lists the services")
    return Status.REFUSED


def _row(term: PastTerm) -> tuple[_output.Field, ...]:
    until = "-" if term.until is None else _output.moment(term.until)
    return term.epoch, term.candidate, _output.moment(term.since), until, term.ended


def _directive_row(entry: LoggedDirective) -> tuple[_output.Field, ...]:
    return entry.number, _output.moment(entry.at), entry.by, entry.action


def _records(
    service: str, found: Iterable[PastTerm] | Iterable[LoggedDirective]
) -> Iterable[dict[str, Any]]:
    return ({"service": service, **one._asdict()} for one in found)
