"""``kip30 coordinate``: work divided among however many processes run it."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kip30.cli import _completion_values, _parameters
from kip30.cli._runner_options import progress, runs_command, status_of
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.errors import UsageError

if TYPE_CHECKING:
    from kip30.runner.item_lists import ItemList

_MOST_SHARDS = 100_000
_MOST_COMMANDS = 100
_MOST_BYTES = 16 << 20


@click.command("coordinate", context_settings={"allow_interspersed_args": False})
@click.option("--group", required=True, metavar="GROUP", help="The group that divides the work.")
@click.option(
    "--shards",
    metavar="N",
    type=click.IntRange(1, _MOST_SHARDS),
    help="Divide the numbers from 0 to N - 1.",
)
@click.option(
    "--items",
    "items_file",
    metavar="FILE",
    type=_parameters.FilePath(),
    help="Divide the lines of FILE, without empty ones; the same for all members.",
)
@click.option(
    "--items-key",
    metavar="KEY",
    shell_complete=_completion_values.keys,
    help="Divide the lines of the value of KEY; when it changes, the work is divided again.",
)
@click.option(
    "--id",
    "client",
    metavar="ID",
    default=_parameters.this_process,
    help="Prefix of the id of this member; else host and process.",
)
@click.option(
    "--instance",
    metavar="ID",
    help="A process restarted with this ID within the session timeout gets its share back.",
)
@click.option("--restart", is_flag=True, help="Run CMD again when it ends, after 1 s up to 60 s.")
@click.option("--each", is_flag=True, help="Run a CMD of its own for each item.")
@click.option(
    "--most",
    metavar="N",
    type=click.IntRange(min=1),
    help=f"With --each: how many CMDs run at once; further items wait. Default: {_MOST_COMMANDS}.",
)
@runs_command(
    held="a share", least="a second at least", least_seconds=1.0, ends="the share ends sooner"
)
@opens_store
def command(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    *,
    group: str,
    shards: int | None,
    items_file: Path | None,
    items_key: str | None,
    client: str,
    instance: str | None,
    restart: bool,
    each: bool,
    most: int | None,
    wait_seconds: float | None,
    grace_seconds: float,
    quiet: bool,
    cmd: tuple[str, ...],
) -> int:
    """Run CMD for a share of the work that no other process of GROUP has.

    CMD finds its items in KIP30_SHARE, with blanks between, and in the file KIP30_SHARE_FILE, one a
    line; also KIP30_GROUP, KIP30_MEMBER, KIP30_GENERATION and KIP30_GUARD. When processes come or
    go, or the list in KEY changes, the work is divided again: CMD gets SIGTERM and the grace if its
    share changes, and starts again with the new one once all its descendants have ended; else it is
    left alone. Without a share no CMD runs. When CMD ends by itself, this process leaves the group
    and passes its status on. Signals are treated as by `kip30 run`.

    With --each every item has a CMD of its own, which finds it in KIP30_ITEM and wherever an
    argument has {}. A CMD runs on as long as its item stays, also when others move, and
    KIP30_GUARD is its item's. Without --restart a CMD that ends is not run again while its item
    stays, and the process stays until a signal.
    """
    if most is not None and not each:
        raise UsageError("--most needs --each: without it there is one CMD")
    from kip30.runner import (  # noqa: PLC0415  slow to import
        ShareJob,
        inherited_descriptors,
        run_items,
        run_shares,
    )
    from kip30.runner.group_items import GroupItems  # noqa: PLC0415  as well
    from kip30.runner.group_member import WorkList  # noqa: PLC0415  as well
    from kip30.runner.group_workshare import GroupWorkshare  # noqa: PLC0415  as well

    work = WorkList(
        group=group,
        items=_items(shards, items_file, items_key),
        client=client,
        instance=instance,
        grace_seconds=grace_seconds,
    )
    job = ShareJob(
        group=group,
        command=cmd,
        restart=restart,
        wait_seconds=wait_seconds,
        grace_seconds=grace_seconds,
        descriptors=inherited_descriptors(),
    )
    properties = choice.properties()
    say = work.items.say = progress(properties, quiet=quiet)
    if each:
        with GroupItems(properties, work) as items:
            outcome = run_items(items, job, most=most or _MOST_COMMANDS, say=say, owns_process=True)
    else:
        with GroupWorkshare(properties, work) as workshare:
            outcome = run_shares(workshare, job, say=say, owns_process=True)
    advice = f"`kip30 coordinate-status {group}` shows who has"
    return status_of(outcome, job, missed="no share", advice=advice)


def _items(shards: int | None, file: Path | None, key: str | None) -> "ItemList":
    """Return the list to divide.

    Raises:
        UsageError: Not exactly one of the three says what it is, or it cannot be divided.
        OSError: The file cannot be read.
    """
    from kip30.runner.item_lists import FixedItems, StoredItems, lines  # noqa: PLC0415  slow to import

    if len([one for one in (shards, file, key) if one is not None]) != 1:
        raise UsageError("give --shards, --items or --items-key, one of them")
    if key is not None:
        return StoredItems(key)
    if file is not None:
        with file.open("rb") as stream:
            content = stream.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:  # also of a device, which has no size and no end
            raise UsageError(f"{file} is longer than {_MOST_BYTES >> 20} MiB: use several groups")
        return FixedItems(lines(os.fsdecode(content)))
    return FixedItems([str(number) for number in range(shards or 0)])
