"""Shared by the commands that run another command while they hold a leadership or a share."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kip30.cli import _parameters
from kip30.cli._failures import say
from kip30.cli._stderr import queue_stderr
from kip30.runtime.resolution import unset_store

if TYPE_CHECKING:
    from kip30.config import Properties
    from kip30.runner import Job, RunOutcome, ShareJob

F = TypeVar("F", bound=Callable[..., Any])


def runs_command(*, held: str, least: str, least_seconds: float, ends: str) -> Callable[[F], F]:
    """Give a command the arguments ``wait_seconds``, ``grace_seconds``, ``quiet`` and ``cmd``.

    Args:
        held: What it waits for.
        least: How long it waits at least, in words.
        least_seconds: The same, in seconds.
        ends: When CMD has less than its grace.
    """

    def wait_seconds(written: str) -> float:
        return max(_parameters.seconds(written), least_seconds)

    def decorate(command: F) -> F:
        options = (
            click.option(
                "--wait",
                "wait_seconds",
                metavar="SECONDS",
                type=wait_seconds,
                help=f"How long to wait for {held}, each time, but {least}; else without limit.",
            ),
            click.option(
                "--grace",
                "grace_seconds",
                metavar="SECONDS",
                type=_parameters.seconds,
                default=10.0,
                show_default=True,
                help=f"How long CMD and its descendants may take to end; less if {ends}.",
            ),
            click.option("--quiet", is_flag=True, help="Print no progress."),
            click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED),
        )
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def progress(properties: "Properties", *, quiet: bool) -> Callable[[str], None]:
    """Return what prints a line of progress, unless *quiet*; no line blocks from now on.

    The first line names the store if no setting in *properties* chose it, or its place: two
    programs that mean different stores both run their commands.

    Raises:
        ConfigError: A setting is wrong; the message names it.
    """
    queue_stderr()
    if quiet:
        return _say_nothing
    if line := unset_store(properties):
        say(line)
    return say


def status_of(outcome: "RunOutcome", job: "Job | ShareJob", *, missed: str, advice: str) -> int:
    """Return the exit status of a run, after printing why it has run nothing.

    Args:
        outcome: How the run came out.
        job: The job to run.
        missed: What has not come if it has waited for too long.
        advice: What to do then.
    """
    from kip30.runner import Ending  # noqa: PLC0415  slow to import

    if outcome.ending is Ending.NOT_EXECUTED:
        say(f"cannot run {job.command[0]}: {os.strerror(outcome.error)}")
    if outcome.ending is Ending.WAITED:
        say(f"{missed} in {job.wait_seconds:g} s — {advice}")
    return outcome.status


def _say_nothing(_line: str) -> None:
    pass
