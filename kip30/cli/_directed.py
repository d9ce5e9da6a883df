"""Printing of services after a directive, and the question before one that ends a term."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

import click

from kip30.cli import _output, _parameters
from kip30.cli._confirmation import confirm
from kip30.cli._exit_codes import Status
from kip30.cli._failures import report, say
from kip30.cli._output import Field, Output
from kip30.errors import (
    AuthenticationError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
    UsageError,
)
from kip30.locator import PluginLocator
from kip30.operations import DirectedService, read_directives, step_down_leader
from kip30.runtime.directives import ElectionPause

F = TypeVar("F", bound=Callable[..., Any])

_TITLES = ("SERVICE", "LEADER", "EPOCH", "PAUSED UNTIL", "BY", "REASON")
_WIDTHS = (24, 24, 6, 25, 16)


def print_directed(one: DirectedService, output: Output) -> None:
    """Print *one* as a line."""
    output.table(_TITLES, [_row(one)], [_record(one)])


def direct_each(
    services: Iterable[str], direct: Callable[[str], DirectedService], output: Output
) -> int:
    """Direct each of *services*, print it, and go on after an error; return the exit code.

    Once the store does not answer, the others are not tried.
    """
    lines = output.lines(_TITLES, _WIDTHS, outlives_reader=True)
    status = int(Status.OK)
    left = list(services)
    while left:
        service = left.pop(0)
        try:
            one = direct(service)
        except Kip30Error as error:
            if left and isinstance(error, UnavailableError | OutcomeUnknownError):
                # First, because the error is the last line.
                say(f"not tried: {', '.join(map(repr, left))}")
                left.clear()
            failed = report(error, repr(service))
            status = status or failed
        else:
            lines.print([_row(one)], partial(_record, one))
    return status


def ends_term(command: F) -> F:
    """Give *command* the options of a directive that ends a term."""
    options = (
        click.option("--epoch", type=int, help="End the term with this epoch alone."),
        click.option(
            "--wait",
            "wait_seconds",
            metavar="SECONDS",
            type=_parameters.seconds,
            help="How long to wait; else the session timeout and 10 s.",
        ),
        click.option("--reason", metavar="TEXT", default="", help="Shown to other operators."),
        click.option("--yes", "confirmed", is_flag=True, help="Do not ask."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def stop_leader(  # noqa: PLR0913  one argument per option
    locator: PluginLocator,
    service: str,
    successor: str | None,
    epoch: int | None,
    wait_seconds: float | None,
    *,
    reason: str,
    confirmed: bool,
) -> DirectedService:
    """Ask, and end the term that was shown; see `step_down_leader`."""
    present = read_directives(locator, service)
    if present.leader is not None and not confirmed:
        confirm(
            f"End the term of {present.leader!r}, epoch {present.epoch}, over {service!r}?",
            otherwise="this needs --yes",
        )
    return step_down_leader(
        locator,
        service,
        successor=successor,
        epoch=(present.epoch or 0) if epoch is None else epoch,
        wait_seconds=wait_seconds,
        reason=reason,
    )


def pause_of(locator: PluginLocator, service: str) -> ElectionPause | None:
    """Return the pause of *service*, if it has one; report a record that cannot be read."""
    try:
        found = read_directives(locator, service)
    except UsageError:  # it takes no directives
        return None
    except (StoreError, AuthenticationError) as error:
        say(str(error))
        return None
    return found.directives.pause if found.is_paused() else None


def pause_end(pause: ElectionPause) -> str:
    """Return until when *pause* lasts, in words."""
    return "it is resumed" if pause.until is None else _output.moment(pause.until)


def _row(one: DirectedService) -> tuple[Field, ...]:
    pause = one.directives.pause if one.is_paused() else None
    leader = (one.service, one.leader or "-", "-" if one.epoch is None else one.epoch)
    if pause is None:
        return *leader, "-", "", ""
    return *leader, pause_end(pause), pause.by, pause.reason


def _record(one: DirectedService) -> dict[str, Any]:
    pause = one.directives.pause if one.is_paused() else None
    return {
        "service": one.service,
        "leader": one.leader,
        "epoch": one.epoch,
        "pause": None if pause is None else pause._asdict(),
    }
