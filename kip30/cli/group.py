"""``kip30 group``: list, watch and join groups."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import click

from kip30.cli import _output, _parameters
from kip30.cli._failures import say
from kip30.cli._follow import stay, watch
from kip30.cli._groups import Commands
from kip30.cli._output import Lines, Output, Row
from kip30.cli._stderr import queue_stderr
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.codecs import BYTES
from kip30.errors import MemberExistsError
from kip30.membership import MembershipChange

_TITLES = ("MEMBER", "DATA")
_WIDTHS = (1, 24)

_group = click.argument("group")


@click.group("group", cls=Commands, no_args_is_help=False)
def command() -> None:
    """List, watch and join groups."""


@command.command("list")
@_group
@_output.prints_records
@opens_store
def list_members(choice: StoreChoice, group: str, *, output: Output) -> None:
    """Print the members of GROUP, an id and its data a line."""
    with choice.open() as locator:
        members = locator.group_membership(group, BYTES).membership()
    rows = ((one, members[one]) for one in sorted(members))
    output.table(_TITLES, rows, [{"group": group, "members": _records(members)}])


_JOINED = "joined group {group} as {member}"
_LOST = "{member} is not a member of {group} now: the session was lost, joining again"
_REJOINED = "joined group {group} as {member} again"
_EVICTED = "{member} is no longer a member of {group}: another client has taken the id"


@command.command()
@_group
@click.option(
    "--id",
    "member",
    metavar="ID",
    default=_parameters.this_process,
    help="Id of the member; else host and process.",
)
@click.option(
    "--data",
    metavar="VALUE",
    default="",
    type=_parameters.value,
    help="Data that other members see.",
)
@opens_store
def join(choice: StoreChoice, group: str, *, member: str, data: bytes) -> int:
    """Be a member of GROUP until interrupted.

    A member whose session was lost joins again as soon as possible. Each change is reported on
    stderr.
    """
    queue_stderr()
    with choice.open() as locator:
        membership = locator.group_membership(group, BYTES)

        def join_with(tell: Callable[[str], object]) -> None:
            membership.join(
                member,
                data,
                on_lost=lambda _: tell(_LOST),
                on_rejoined=lambda _: tell(_REJOINED),
                on_evicted=lambda _: tell(_EVICTED),
            )
            tell(_JOINED)

        def show(news: str) -> None:
            line = news.format(group=group, member=member)
            if news is _EVICTED:
                raise MemberExistsError(line)
            say(line)

        return stay(locator, join_with, show)


@command.command("watch")
@_group
@_output.prints_records
@opens_store
def watch_group(choice: StoreChoice, group: str, *, output: Output) -> int:
    """Print the members of GROUP now and all changes, until interrupted.

    A line is "+", "-" or "~", for a member that joined, left or changed, its id and its data.
    """
    with choice.open() as locator:
        membership = locator.group_membership(group, BYTES)
        listen = partial(membership.add_listener, initial=True)
        lines = output.lines(("CHANGE", *_TITLES), _WIDTHS)
        return watch(locator, listen, partial(_show, lines))


def _show(lines: Lines, change: MembershipChange[bytes]) -> None:
    lines.print(_rows(change), partial(_record, change))


def _rows(change: MembershipChange[bytes]) -> Iterator[Row]:
    for sign, ids in (("-", change.left), ("+", change.joined), ("~", change.updated)):
        for member in sorted(ids):
            yield sign, member, change.members.get(member, b"")


def _record(change: MembershipChange[bytes]) -> dict[str, Any]:
    return {
        "group": change.group,
        "joined": sorted(change.joined),
        "left": sorted(change.left),
        "updated": sorted(change.updated),
        "members": _records(change.members),
    }


def _records(members: Mapping[str, bytes]) -> list[dict[str, str | None]]:
    return [{"id": one, **_output.text_or_base64("data", members[one])} for one in sorted(members)]
