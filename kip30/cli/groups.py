"""``kip30 groups``: every group that has members or bans."""

import click

from kip30.cli import _output
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.cli._unreadable import report_unreadable
from kip30.operations import read_directory


@click.command("groups")
@click.option(
    "-a", "--all", "internal", is_flag=True, help="Print those of locks and coordinators, too."
)
@_output.prints_records
@opens_store
def command(choice: StoreChoice, *, internal: bool, output: Output) -> None:
    """Print all groups that have members or bans, and how many.

    `kip30 group list GROUP` prints the members of one, and `kip30 group bans GROUP` its bans.
    """
    found = read_directory(choice.properties(), internal=internal, with_bans=True)
    report_unreadable(found.unreadable)
    records = (one._asdict() for one in found.groups)
    output.table(("GROUP", "MEMBERS", "BANNED"), found.groups, records)
