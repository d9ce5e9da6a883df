"""``kip30 pause``: no candidate is elected to lead a service."""

import click

from kip30.cli import _output, _parameters
from kip30.cli._directed import direct_each
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.operations import check_directed, pause_service


@click.command("pause")
@click.argument("services", metavar="SERVICE...", nargs=-1, required=True)
@click.option(
    "--for",
    "seconds",
    metavar="TIME",
    type=_parameters.duration,
    help="End the pause after this time: a number with s, min, h or d, such as 30min.",
)
@click.option("--reason", metavar="TEXT", default="", help="Shown to other operators.")
@_output.prints_records
@opens_store
def command(
    choice: StoreChoice,
    *,
    services: tuple[str, ...],
    seconds: float | None,
    reason: str,
    output: Output,
) -> int:
    """Keep all candidates for each SERVICE from being elected, until `kip30 resume`.

    The leader, if there is one, leads on: `kip30 step-down` ends its term. Candidates of
    `kip30 run` obey, and those of other programs with the setting plugin.operations=true. Prints
    the leader and the pause of each service. A second pause replaces the first one.
    """
    for service in services:
        check_directed(service)
    with choice.open() as locator:
        return direct_each(
            services,
            lambda one: pause_service(locator, one, seconds=seconds, reason=reason),
            output,
        )
