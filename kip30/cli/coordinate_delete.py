"""``kip30 coordinate-delete``: removes what a group that divided work has left behind."""

import click

from kip30.cli._exit_codes import Status
from kip30.cli._failures import say
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.coordinator import delete_group


@click.command("coordinate-delete")
@click.argument("group")
@click.option(
    "--data", "with_data", is_flag=True, help="Also delete what `kv --guard` has written."
)
@opens_store
def command(choice: StoreChoice, group: str, *, with_data: bool) -> int:
    """Delete the records of GROUP, which no longer has members.

    A group keeps its last division of work, so that a process with an --instance finds its share
    again. The records of groups that are used once, such as one per job, add up. Exits with 1 if
    there is no such group, or if it has members; end its processes first.
    """
    with choice.open() as locator:
        found = delete_group(locator, group, with_data=with_data)
    if not found:
        say(f"there is no group {group!r} that divided work: nothing was deleted")
    return Status.OK if found else Status.REFUSED
