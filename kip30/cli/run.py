"""``kip30 run``: a command on exactly one of many machines."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import click

from kip30.cli import _parameters
from kip30.cli._exit_codes import Status
from kip30.cli._runner_options import progress, runs_command, status_of
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.config import MAX_PRIORITY
from kip30.runner.service_election import OncePerKeyContest, StoreContest

if TYPE_CHECKING:
    from kip30.config import Properties
    from kip30.runner import Job
    from kip30.serving.health import HealthServer


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--service", required=True, metavar="SERVICE", help="The service to lead.")
@click.option(
    "--id",
    "candidate",
    metavar="ID",
    default=_parameters.this_process,
    help="Id of this candidate; else host and process.",
)
@click.option(
    "--priority",
    metavar="N",
    type=click.IntRange(0, MAX_PRIORITY),
    help=f"Priority of this candidate, 0 to {MAX_PRIORITY}: at a vacancy the highest leads; else"
    " that of plugin.priority.",
)
@click.option(
    "--once-per",
    "run_key",
    metavar="KEY",
    help="Run CMD until it has succeeded once for KEY, such as a date, on any machine.",
)
@click.option(
    "-n",
    "--dry-run",
    is_flag=True,
    help="Run nothing: print the store, the timeouts, who leads, and whether KEY is done.",
)
@click.option(
    "--listen",
    "address",
    metavar="ADDR",
    help="Answer probes of health over HTTP at HOST:PORT, or at PORT of 127.0.0.1.",
)
@click.option(
    "--listen-host",
    "hosts",
    metavar="NAME",
    multiple=True,
    help="A name of this host by which probes ask for it; IP addresses need not be given.",
)
@click.option("--once", is_flag=True, help="Exit when leadership is lost, without waiting again.")
@runs_command(
    held="leadership",
    least="at least until one attempt has ended or taken the operation timeout",
    least_seconds=0.0,
    ends="the lease runs out sooner",
)
@opens_store
def command(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    *,
    service: str,
    candidate: str,
    priority: int | None,
    run_key: str | None,
    dry_run: bool,
    address: str | None,
    hosts: tuple[str, ...],
    once: bool,
    wait_seconds: float | None,
    grace_seconds: float,
    quiet: bool,
    cmd: tuple[str, ...],
) -> int:
    """Run CMD while, and only while, this process leads SERVICE.

    Waits until it leads, and runs CMD with KIP30_SERVICE, KIP30_CANDIDATE and KIP30_EPOCH in its
    environment. When CMD ends, processes that it left running get SIGTERM and the grace; then the
    leadership is handed over and CMD's status passed on. When leadership is lost, CMD and its
    descendants are ended before another process can lead, and the waiting begins again. SIGTERM,
    SIGINT, SIGHUP and SIGQUIT are passed on to CMD and its descendants; a second signal kills them.

    `kip30 step-down` and `hand-over` end CMD in the same way, with SIGTERM and the grace, before
    another process can lead, and `kip30 pause` keeps every process from being elected.

    With --priority or plugin.priority, the waiting candidate of the highest priority leads when the
    service becomes vacant. It replaces no leader of a lower priority.

    With --once-per, CMD runs only if it has not succeeded for KEY before, and a status 0 is noted
    in the store, with the fence of the term. Runners that wait for the service then exit with 0.
    After another status the next runner that waits runs CMD.

    With --listen, load balancers and probes are answered: /leader is 200 while this process leads,
    and else 503; /replica, /readiness and /liveness are alike. "/" lists all paths.
    """
    from kip30.runner import Job, inherited_descriptors, run  # noqa: PLC0415  slow to import

    job = Job(
        service=service,
        candidate=candidate,
        command=cmd,
        once=once,
        wait_seconds=wait_seconds,
        grace_seconds=grace_seconds,
        descriptors=inherited_descriptors(),
    )
    if hosts and address is None:
        raise click.UsageError("--listen-host is for --listen, which is not given")
    properties = choice.properties()
    if dry_run:
        from kip30.cli._run_preview import print_preview  # noqa: PLC0415  as above

        print_preview(properties, job, run_key, address, priority)
        return Status.OK
    tell = progress(properties, quiet=quiet)
    if address is not None:
        from kip30.cli._run_health import metered  # noqa: PLC0415  as above

        properties = metered(properties)
    contest = (
        StoreContest(properties, service, candidate, priority=priority)
        if run_key is None
        else OncePerKeyContest(properties, service, candidate, run_key, priority=priority)
    )
    with contest, _health(contest, job, properties, address, hosts) as health:
        if health is not None:
            tell(f"health at http://{health.address}/")
        mark_alive = _do_nothing if health is None else health.mark_alive
        outcome = run(contest, job, say=tell, owns_process=True, mark_alive=mark_alive)
    advice = f"`kip30 leader {service}` shows who leads"
    return status_of(outcome, job, missed="not elected", advice=advice)


def _health(
    contest: StoreContest,
    job: "Job",
    properties: "Properties",
    address: str | None,
    hosts: Sequence[str],
) -> "AbstractContextManager[HealthServer | None]":
    if address is None:
        return nullcontext()
    from kip30.cli._run_health import health_of  # noqa: PLC0415  as for `command`

    return health_of(contest, job, properties, address, hosts)


def _do_nothing() -> None:
    pass
