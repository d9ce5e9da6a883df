"""``kip30 coordinate-status``: which member of a group has which share."""

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from kip30.cli import _output
from kip30.cli._exit_codes import Status
from kip30.cli._failures import say
from kip30.cli._follow import Outage, watch
from kip30.cli._output import Output, Row
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.coordinator import GroupDescription, MemberDescription, describe_group, share_text
from kip30.driver.kit.thread_start import start_eventually
from kip30.errors import OutcomeUnknownError, UnavailableError
from kip30.locator import PluginLocator

_TITLES = ("MEMBER", "INSTANCE", "SINCE", "SHARE")
_LOOK_SECONDS = 1.0
_ABSENT = " (gone)"
_UNREADABLE = " (unreadable)"


@click.command("coordinate-status")
@click.argument("group")
@click.option("--watch", "watching", is_flag=True, help="Continue, and print it at every change.")
@_output.prints_records
@opens_store
def command(choice: StoreChoice, group: str, *, watching: bool, output: Output) -> int:
    """Print the members of GROUP, each with its share.

    A line is the member's id, its instance or "-", the generation that gave the share, and the
    share: places in the list from 0 on, as ranges, or names of a list in the store. A member that
    is gone and whose share has not been given away yet is marked so, and one whose record cannot be
    read. Exits with 1 if there is no such group. A watch looks every second, and prints an empty
    line after each state of the group.
    """
    with choice.open() as locator:
        if watching:
            follow = partial(_follow, locator, group)
            return watch(locator, follow, partial(_show_next, output, group))
        found = describe_group(locator, group)
    if found is None and not output.is_objects:
        say(f"there is no group {group!r} that divides work — `kip30 coordinate` makes one")
    else:
        _show(output, group, found)
    return Status.REFUSED if found is None else Status.OK


def _follow(
    locator: PluginLocator,
    group: str,
    tell: Callable[[GroupDescription | Outage | Exception | None], object],
) -> None:
    """Call *tell* with what the group looks like, and at each change of that."""

    def look() -> None:
        known: object = tell
        is_out = False
        while True:
            try:
                found = describe_group(locator, group)
            except (UnavailableError, OutcomeUnknownError) as error:
                if not is_out:
                    tell(Outage(error))
                is_out = True
            except Exception as error:  # noqa: BLE001  the main thread raises it
                tell(error)
                return
            else:
                is_out = False
                if found != known:
                    tell(found)
                known = found
            time.sleep(_LOOK_SECONDS)

    start_eventually(threading.Thread(target=look, name="kip30-status", daemon=True))


def _show_next(output: Output, group: str, found: GroupDescription | Exception | None) -> None:
    if isinstance(found, Exception):
        raise found
    _show(output, group, found)
    output.end_listing()


def _show(output: Output, group: str, found: GroupDescription | None) -> None:
    record = {"group": group, "state": found and _record(found)}
    if found is None:
        output.line(_TITLES, ("-",), record)
        return
    rows = (_row(name, found.members[name]) for name in sorted(found.members))
    output.table(_TITLES, rows, [record])


def _row(name: str, member: MemberDescription) -> Row:
    mark = _ABSENT if not member.is_present else "" if member.is_readable else _UNREADABLE
    return name + mark, member.group_instance_id or "-", member.since, _share(member)


def _share(member: MemberDescription) -> str:
    return member.refusal or share_text(member.share) or "-"


def _record(found: GroupDescription) -> dict[str, Any]:
    return {
        "generation": found.generation,
        "rebalancing": found.is_rebalancing,
        "protocol": found.protocol,
        "leader": found.leader,
        "epoch": found.epoch,
        "members": [
            {
                "id": name,
                "instance": one.group_instance_id,
                "present": one.is_present,
                "readable": one.is_readable,
                "since": one.since,
                "share": share_text(one.share),
                "refusal": one.refusal,
            }
            for name, one in sorted(found.members.items())
        ],
    }
