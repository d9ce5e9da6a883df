"""``kip30 resume``: candidates for a service can be elected again."""

import click

from kip30.cli import _output
from kip30.cli._directed import print_directed
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.operations import resume_service


@click.command("resume")
@click.argument("services", metavar="SERVICE...", nargs=-1, required=True)
@_output.prints_records
@opens_store
def command(choice: StoreChoice, *, services: tuple[str, ...], output: Output) -> None:
    """End the pause of each SERVICE.

    Nothing happens to one that is not paused.
    """
    with choice.open() as locator:
        found = [resume_service(locator, one) for one in services]
    print_directed(found, output)
