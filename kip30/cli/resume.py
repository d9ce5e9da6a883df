"""``kip30 resume``: candidates for a service can be elected again."""

import click

from kip30.cli import _output
from kip30.cli._directed import direct_each
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.operations import check_directed, resume_service


@click.command("resume")
@click.argument("services", metavar="SERVICE...", nargs=-1, required=True)
@_output.prints_records
@opens_store
def command(choice: StoreChoice, *, services: tuple[str, ...], output: Output) -> int:
    """End the pause of each SERVICE.

    That withdraws a step-down that is under way, too. Nothing happens to a service without either.
    """
    for service in services:
        check_directed(service)
    with choice.open() as locator:
        return direct_each(services, lambda one: resume_service(locator, one), output)
