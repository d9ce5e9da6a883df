"""``kip30 leader``: the leader of a service."""

from functools import partial
from typing import Any

import click

from kip30.cli import _output
from kip30.cli._exit_codes import Status
from kip30.cli._failures import say
from kip30.cli._follow import watch
from kip30.cli._output import Output, Row
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.codecs import BYTES
from kip30.election import Leader, LeaderChange, LeaderElection
from kip30.locator import PluginLocator

_TITLES = ("LEADER", "EPOCH", "DATA")
_WIDTHS = (24, 6)


@click.command("leader")
@click.argument("service")
@click.option(
    "--watch", "watching", is_flag=True, help="Continue, and print every change of leader."
)
@_output.prints_records
@opens_store
def command(choice: StoreChoice, service: str, *, watching: bool, output: Output) -> int:
    """Print the leader of SERVICE.

    A line is the candidate's id, the epoch, and the candidate's data. Exits with 1
    if no one leads; a watch prints "-" for that, and in JSON and YAML "leader" is null.
    """
    with choice.open() as locator:
        election = locator.leader_election(service, BYTES)
        if watching:
            return _watch(locator, election, output)
        leader = election.get_leader()
    if leader is None and not output.is_objects:
        say(f"{service!r} has no leader — `kip30 leader {service} --watch` waits for one")
    else:
        output.table(_TITLES, [_row(leader)], [_record(service, leader)])
    return Status.REFUSED if leader is None else Status.OK


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
