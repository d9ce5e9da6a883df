"""``kip30 run``: a command on exactly one of many machines."""

import os

import click

from kip30.cli import _parameters
from kip30.cli._failures import say
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.runner.contest import StoreContest

_LEAST_WAIT_SECONDS = 1.0


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--service", required=True, metavar="SERVICE", help="What to lead.")
@click.option(
    "--id",
    "candidate",
    metavar="ID",
    default=_parameters.this_process,
    help="Else host and process.",
)
@click.option("--once", is_flag=True, help="End when leadership is lost, do not wait for it again.")
@click.option(
    "--wait",
    "wait_seconds",
    metavar="SECONDS",
    type=_parameters.seconds,
    help="How long to wait for leadership, each time, but a second at least; else for ever.",
)
@click.option(
    "--grace",
    "grace_seconds",
    metavar="SECONDS",
    type=_parameters.seconds,
    default=10.0,
    show_default=True,
    help="How long CMD and its descendants may take to end; less if the lease runs out sooner.",
)
@click.option("--quiet", is_flag=True, help="Say nothing of the progress.")
@click.argument("cmd", nargs=-1, required=True, type=click.UNPROCESSED)
@opens_store
def command(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    *,
    service: str,
    candidate: str,
    once: bool,
    wait_seconds: float | None,
    grace_seconds: float,
    quiet: bool,
    cmd: tuple[str, ...],
) -> int:
    """Run CMD while, and only while, this process leads SERVICE.

    Waits until it leads, and runs CMD with KIP30_SERVICE, KIP30_CANDIDATE and KIP30_EPOCH in its
    environment. When CMD ends, what it left running gets SIGTERM and the grace; then the leadership
    is handed over and CMD's status passed on. When leadership is lost, CMD and its descendants are
    ended before another process can lead, and the waiting begins again. SIGTERM, SIGINT, SIGHUP and
    SIGQUIT are passed on to CMD and its descendants; a second request to end kills them.
    """
    from kip30.runner import Ending, Job, inherited_descriptors, run  # noqa: PLC0415  slow to import

    job = Job(
        service=service,
        candidate=candidate,
        command=cmd,
        once=once,
        wait_seconds=None if wait_seconds is None else max(wait_seconds, _LEAST_WAIT_SECONDS),
        grace_seconds=grace_seconds,
        descriptors=inherited_descriptors(),
    )
    with StoreContest(choice.properties(), service, candidate) as contest:
        outcome = run(contest, job, say=_say_nothing if quiet else say)
    if outcome.ending is Ending.NOT_EXECUTED:
        say(f"cannot run {cmd[0]}: {os.strerror(outcome.error)}")
    if outcome.ending is Ending.WAITED:
        say(f"not elected in {job.wait_seconds:g} s — `kip30 leader {service}` shows who leads")
    return outcome.status


def _say_nothing(_line: str) -> None:
    pass
