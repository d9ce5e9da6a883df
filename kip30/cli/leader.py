"""``kip30 leader``: the leader of a service."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import click

from kip30.cli import _output
from kip30.cli._directed import pause_end, pause_of
from kip30.cli._exit_codes import Status
from kip30.cli._failures import say
from kip30.cli._follow import watch
from kip30.cli._output import Output, Row
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.codecs import BYTES
from kip30.election import Leader, LeaderChange, LeaderElection
from kip30.errors import AuthenticationError, InvalidNameError, StoreError, UnsupportedError
from kip30.locator import PluginLocator
from kip30.operations import WaitingPlace, began_at, read_line, read_past_terms
from kip30.operations.service_line import place_record

_TITLES = ("LEADER", "EPOCH", "DATA")
_WIDTHS = (24, 6)
_LINE_TITLES = ("PLACE", "CANDIDATE", "EPOCH", "HOST", "PROCESS", "SINCE", "PRIORITY")


@click.command("leader")
@click.argument("service")
@click.option(
    "--watch", "watching", is_flag=True, help="Continue, and print every change of leader."
)
@click.option("-a", "--all", "with_line", is_flag=True, help="Print the line of candidates, too.")
@_output.prints_records
@opens_store
def command(
    choice: StoreChoice, service: str, *, watching: bool, with_line: bool, output: Output
) -> int:
    """Print the leader of SERVICE.

    A line is the candidate's id, the epoch, and the candidate's data. Exits with 1
    if no one leads; a watch prints "-" for that, and in JSON and YAML "leader" is null.

    With --all a line is "leader", its id and epoch, and since when if `kip30 terms` has it, or a
    number in the line of candidates that wait, the candidate that has this place, its host and
    process, since when, and its priority. Candidates of one process share a place. On Cassandra
    candidates form no line; in JSON "line" is null. A pause of the service is shown on stderr.
    """
    if watching and with_line:
        raise click.UsageError("--all and --watch exclude each other: the line is read once")
    with choice.open() as locator:
        election = locator.leader_election(service, BYTES)
        if watching:
            return _watch(locator, election, output)
        leader = election.get_leader()
        line = _read_line(locator, service, output) if with_line else None
        pause = pause_of(locator, service) if with_line else None
        since = _since(locator, service, leader) if with_line else None
    if leader is None and not output.is_objects:
        say(f"{service!r} has no leader — `kip30 leader {service} --watch` waits for one")
    if with_line:
        places = None if line is None else [place_record(one) for one in line]
        if pause is not None and not output.is_objects:
            say(f"{service!r} is paused by {pause.by} until {pause_end(pause)}")
        record = {
            **_record(service, leader),
            "line": places,
            "pause": None if pause is None else pause._asdict(),
            "since": since,
        }
        output.table(_LINE_TITLES, _line_rows(leader, since, line or ()), [record])
    elif leader is not None or output.is_objects:
        output.table(_TITLES, [_row(leader)], [_record(service, leader)])
    return Status.REFUSED if leader is None else Status.OK


def _read_line(
    locator: PluginLocator, service: str, output: Output
) -> Sequence[WaitingPlace] | None:
    try:
        return read_line(locator, service)
    except UnsupportedError as error:
        if not output.is_objects:
            say(str(error))
        return None


def _since(locator: PluginLocator, service: str, leader: Leader[bytes] | None) -> float | None:
    """Return when the term of *leader* began, if that is noted."""
    if leader is None:
        return None
    try:
        return began_at(read_past_terms(locator, service), leader.epoch)
    except InvalidNameError:  # too long for a record
        return None
    except (StoreError, AuthenticationError) as error:
        say(str(error))
        return None


def _line_rows(
    leader: Leader[bytes] | None, since: float | None, line: Sequence[WaitingPlace]
) -> Iterator[Row]:
    if leader is not None:
        began = "" if since is None else _output.moment(since)
        yield "leader", leader.id, leader.epoch, "", "", began, ""
    for number, one in enumerate(line, 1):
        shown = number if one.is_readable else "?"
        if one.place is None:
            yield shown, "-", "-", "", "", "", ""
            continue
        candidate, host, pid, since, priority = one.place
        yield shown, candidate, "-", host, pid, _output.moment(since), priority


def _watch(locator: PluginLocator, election: LeaderElection[bytes], output: Output) -> int:
    lines = output.lines(_TITLES, _WIDTHS)

    def show(change: LeaderChange[bytes]) -> None:
        lines.print([_row(change.leader)], partial(_record, change.service, change.leader))

    return watch(locator, partial(election.add_listener, initial=True), show)


def _row(leader: Leader[bytes] | None) -> Row:
    return ("-",) if leader is None else (leader.id, leader.epoch, leader.data)


def _record(service: str, leader: Leader[bytes] | None) -> dict[str, Any]:
    return {"service": service, "leader": leader and _fields(leader)}


def _fields(leader: Leader[bytes]) -> dict[str, str | int | None]:
    data = _output.text_or_base64("data", leader.data)
    return {"id": leader.id, "epoch": leader.epoch, **data}
