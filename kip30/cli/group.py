"""``kip30 group``: list, watch and join groups, and keep members out."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import click

from kip30.cli import _output, _parameters
from kip30.cli._confirmation import confirm
from kip30.cli._failures import say
from kip30.cli._follow import stay, watch
from kip30.cli._groups import Commands
from kip30.cli._output import Lines, Output, Row
from kip30.cli._stderr import queue_stderr
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.cli._unreadable import report_unreadable
from kip30.codecs import BYTES
from kip30.config import did_you_mean
from kip30.driver.scanning import Rejected
from kip30.errors import Kip30Error, MemberExistsError
from kip30.locator import PluginLocator
from kip30.membership import MembershipChange
from kip30.operations import BannedMember, admit, check_group, evict, read_bans
from kip30.operations.bans import member_ids
from kip30.runtime.member import Member

_TITLES = ("MEMBER", "DATA")
_WIDTHS = (1, 24)

_group = click.argument("group")


@click.group("group", cls=Commands, no_args_is_help=False)
def command() -> None:
    """List, watch and join groups, and keep members out."""


@command.command("list")
@_group
@_output.prints_records
@opens_store
def list_members(choice: StoreChoice, group: str, *, output: Output) -> None:
    """Print the members of GROUP, an id and its data a line.

    Members whose records cannot be read are named on stderr.
    """
    with choice.open() as locator:
        members = locator.group_membership(group, BYTES).membership()
    reason = "its record cannot be read"
    unreadable = sorted(one.encode(errors="backslashreplace") for one in members.unreadable)
    report_unreadable([Rejected(one, reason) for one in unreadable])
    rows = ((one, members[one]) for one in sorted(members))
    output.table(_TITLES, rows, [{"group": group, "members": _records(members)}])


_JOINED = "joined group {group} as {member}"
_LOST = "{member} is not a member of {group} now: {why}, joining again"
_REJOINED = "joined group {group} as {member} again"
_EVICTED = "{member} is no longer a member of {group}: another client has taken the id"


class _News(NamedTuple):
    text: str
    why: str = ""


def _why(lost: Member) -> str:
    """Return why *lost* is no member any longer; its session may go on."""
    return lost.ending_reason if lost.lease.is_valid() else "the session was lost"


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
    stderr. With the setting plugin.operations=true it obeys `kip30 group evict`.
    """
    queue_stderr()
    with choice.open() as locator:
        membership = locator.group_membership(group, BYTES)

        def join_with(tell: Callable[[_News], object]) -> None:
            membership.join(
                member,
                data,
                on_lost=lambda lost: tell(_News(_LOST, _why(lost))),
                on_rejoined=lambda _: tell(_News(_REJOINED)),
                on_evicted=lambda _: tell(_News(_EVICTED)),
            )
            tell(_News(_JOINED))

        def show(news: _News) -> None:
            line = news.text.format(group=group, member=member, why=news.why)
            if news.text is _EVICTED:
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


_MEMBER_TITLES = ("GROUP", "MEMBER", "BANNED UNTIL", "BY", "REASON")


@command.command("evict")
@_group
@click.argument("member", metavar="ID")
@click.option(
    "--ban",
    "ban_seconds",
    metavar="TIME",
    default="5min",
    type=_parameters.duration,
    help="How long: a number with s, min, h or d, such as 30min; else 5min.",
)
@click.option("--reason", metavar="TEXT", default="", help="Shown to operators and to the program.")
@click.option("--yes", "confirmed", is_flag=True, help="Do not ask.")
@_output.prints_records
@opens_store
def evict_member(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    group: str,
    *,
    member: str,
    ban_seconds: float,
    reason: str,
    confirmed: bool,
    output: Output,
) -> None:
    """Let member ID leave GROUP, and keep it out for some time.

    The member itself ends its membership, and joins again by itself when the ban is over. Programs
    with the setting plugin.operations=true obey; others stay: `kip30 group list GROUP` shows who is
    there. An ID that no member has is banned all the same. A second ban of ID replaces the first
    one. `kip30 group admit` lifts it; `kip30 group bans GROUP` shows those of a group.
    """
    check_group(group)
    with choice.open() as locator:
        if not confirmed:
            _confirm(locator, group, member, ban_seconds)
        evicted = evict(locator, group, member, ban_seconds=ban_seconds, reason=reason)
        if not evicted.is_member:
            say(f"{group!r} has no member {member!r} now{_alternative(locator, group, member)}")
    _print_members([evicted], output)


def _alternative(locator: PluginLocator, group: str, member: str) -> str:
    """Return a hint at a member with a similar id; empty if they cannot be read now."""
    try:
        return did_you_mean(member, sorted(member_ids(locator, group)))
    except Kip30Error:
        return ""


def _confirm(locator: PluginLocator, group: str, member: str, ban_seconds: float) -> None:
    """Ask before a member is evicted; an id that no member has takes nothing from anybody."""
    if member in member_ids(locator, group):
        confirm(
            f"Let {member!r} leave {group!r}, and ban it for {ban_seconds:g} s?",
            otherwise="this needs --yes",
        )


@command.command("admit")
@_group
@click.argument("member", metavar="ID")
@_output.prints_records
@opens_store
def admit_member(choice: StoreChoice, group: str, *, member: str, output: Output) -> None:
    """Lift the ban of member ID in GROUP, so that it joins again by itself.

    Nothing happens to one that is not banned.
    """
    check_group(group)
    with choice.open() as locator:
        admitted = admit(locator, group, member)
    _print_members([admitted], output)


@command.command("bans")
@_group
@_output.prints_records
@opens_store
def list_bans(choice: StoreChoice, group: str, *, output: Output) -> None:
    """Print the bans of GROUP that are not over.

    `kip30 groups` prints how many ids are banned from each group, and `kip30 status` those that
    are members though they are banned.
    """
    check_group(group)
    with choice.open() as locator:
        bans = read_bans(locator, group)
        members = member_ids(locator, group)
    _print_members([BannedMember(group, ban.id, ban.id in members, ban) for ban in bans], output)


def _print_members(found: Sequence[BannedMember], output: Output) -> None:
    output.table(_MEMBER_TITLES, map(_member_row, found), map(_member_record, found))


def _member_row(one: BannedMember) -> tuple[str, ...]:
    if one.ban is None:
        return one.group, one.id, "-", "", ""
    return one.group, one.id, _output.moment(one.ban.until), one.ban.by, one.ban.reason


def _member_record(one: BannedMember) -> dict[str, Any]:
    ban = None if one.ban is None else one.ban._asdict()
    return {"group": one.group, "id": one.id, "is_member": one.is_member, "ban": ban}


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
