"""``kip30 status``: how much there is in the store, and what wants attention."""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

import click

from kip30.cli import _output
from kip30.cli._exit_codes import Status
from kip30.cli._failures import explain, say
from kip30.cli._follow import pause
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.errors import UnavailableError
from kip30.operations import Overview, OverviewReader
from kip30.operations.overview import MOST_UNREADABLE

Row = tuple[str, _output.Field]

_TITLES = ("WHAT", "VALUE")
_WIDTHS = (14,)
_CLEAR = "\x1b[H\x1b[2J"


@click.command("status")
@click.option("-w", "--watch", "watching", is_flag=True, help="Look again and again.")
@_output.prints_records
@opens_store
def command(choice: StoreChoice, *, watching: bool, output: Output) -> int:
    """Print what there is in the store, and what wants attention.

    That is the store and its place, how long the read took, the numbers of services, groups and
    members; and, as "attention", services in whose line candidates wait though no one has led
    for a session timeout, services that have been paused for longer than a day, members that
    stay for a session timeout though they are banned, and records that cannot be read. A service
    that is paused, and an id that is banned from a group, are shown as such. If others have no
    leader, or a banned member is there, a second look follows after that time. Exits with 1 if
    something wants attention, and 3 if the store does not answer.

    A watch looks every 10 s, and every 30 s on Cassandra, where it reads whole tables. It shows
    that the store does not answer, and goes on. On Cassandra candidates form no line, so no
    service is found to lack a leader.
    """
    reader = OverviewReader(choice.properties())
    if watching:
        return _watch(reader, output)
    overview = reader.read()
    if overview.is_undecided:
        if not output.is_objects:
            _say_undecided(overview)
        overview = reader.read_when_decided()
    output.lines(_TITLES, _WIDTHS, outlives_reader=True).print(
        _rows(reader, overview), partial(_record, reader, overview)
    )
    return Status.REFUSED if overview.wants_attention else Status.OK


def _say_undecided(overview: Overview) -> None:
    counts = {
        "without a leader though candidates wait": len(overview.vacant),
        "banned and still a member": len(overview.banned_members),
    }
    found = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    say(f"{found}: looking again in {overview.session_timeout_seconds:g} s")


def _watch(reader: OverviewReader, output: Output) -> int:
    is_first = True
    while True:
        look = _look(reader)
        if output.is_objects:
            output.record(_record(reader, look))
        else:
            _show_block([("time", _now()), *_rows(reader, look)], output, is_first=is_first)
        if pause(reader.period_seconds):
            return Status.OK
        is_first = False


def _look(reader: OverviewReader) -> Overview | UnavailableError:
    try:
        return reader.read()
    except UnavailableError as error:
        return error


def _show_block(rows: Sequence[Row], output: Output, *, is_first: bool) -> None:
    """Print *rows* in place of those before, or after them if this is no screen."""
    if sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        click.echo(_CLEAR, nl=False)
        # The line that follows the last one is the screen's, too.
        height = shutil.get_terminal_size().lines - 1
        if len(rows) > height > 1:
            rows = [*rows[: height - 1], ("", f"{len(rows) - height + 1} more lines")]
    elif not is_first:
        click.echo()
    output.lines(_TITLES, _WIDTHS).print(rows)


def _rows(reader: OverviewReader, look: Overview | UnavailableError) -> list[Row]:
    rows: list[Row] = [("store", reader.store), ("place", reader.place or "-")]
    if isinstance(look, UnavailableError):
        return [*rows, ("attention", f"the store does not answer: {explain(look).what}")]
    counts = [(name, count) for name, count in _counts(look).items()]
    return [
        *rows,
        ("read", f"{look.read_seconds * 1000:.1f} ms"),
        *counts,
        *(("paused", one) for one in look.paused),
        *(("banned", f"{one['id']} in {one['group']}") for one in _bans(look)),
        *(("attention", problem) for problem in look.problems()),
    ]


def _counts(overview: Overview) -> dict[str, int]:
    return {
        "services": len(overview.services),
        "led": sum(one.is_led for one in overview.services),
        "groups": len(overview.groups),
        "members": sum(one.members for one in overview.groups),
    }


def _bans(overview: Overview) -> list[dict[str, Any]]:
    return [
        {"group": group, **record}
        for group in sorted(overview.bans)
        for record in overview.ban_records(group)
    ]


def _record(reader: OverviewReader, look: Overview | UnavailableError) -> dict[str, Any]:
    record = {"at": time.time(), "store": reader.store, "place": reader.place or None}
    if isinstance(look, UnavailableError):
        unknown = ("read_ms", "services", "led", "groups", "members", "unreadable")
        empty = ("paused", "long_paused", "banned", "staying", "leaderless", "unreadable_keys")
        nothing: dict[str, Any] = {name: [] for name in empty}
        return {**record, **dict.fromkeys(unknown), **nothing, "error": explain(look).what}
    return {
        **record,
        "read_ms": look.read_seconds * 1000,
        **_counts(look),
        "paused": look.paused,
        "long_paused": look.long_paused,
        "banned": _bans(look),
        "staying": [{"group": group, "id": one} for group, one in look.staying],
        "leaderless": [one.service for one in look.leaderless],
        "unreadable": len(look.unreadable),
        "unreadable_keys": [one.shown_key for one in look.unreadable[:MOST_UNREADABLE]],
        "error": None,
    }


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
