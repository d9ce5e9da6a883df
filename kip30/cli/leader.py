"""``kip30 leader``: the leader of a service."""

from functools import partial

import click

from kip30.cli import _output
from kip30.cli._exit_codes import Status
from kip30.cli._failures import say
from kip30.cli._follow import watch
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.codecs import BYTES
from kip30.election import Leader, LeaderChange, LeaderElection
from kip30.locator import PluginLocator

_WIDTHS = (24, 6)


@click.command("leader")
@click.argument("service")
@click.option(
    "--watch", "watching", is_flag=True, help="Continue, and print every change of leader."
)
@_output.as_json
@opens_store
def command(choice: StoreChoice, service: str, *, watching: bool, as_json: bool) -> int:
    """Print the leader of SERVICE.

    A line is the candidate's id, the epoch, and the candidate's data. Exits with 1
    if no one leads; a watch prints "-" for that, and with --json "leader" is null.
    """
    with choice.open() as locator:
        election = locator.leader_election(service, BYTES)
        if watching:
            return _watch(locator, election, as_json=as_json)
        leader = election.get_leader()
    if leader is None and not as_json:
        say(f"{service!r} has no leader — `kip30 leader {service} --watch` waits for one")
    elif as_json:
        _show(service, leader, as_json=True)
    elif leader is not None:
        _output.table(("LEADER", "EPOCH", "DATA"), [(leader.id, leader.epoch, leader.data)])
    return Status.REFUSED if leader is None else Status.OK


def _watch(locator: PluginLocator, election: LeaderElection[bytes], *, as_json: bool) -> int:
    def show(change: LeaderChange[bytes]) -> None:
        _show(change.service, change.leader, as_json=as_json)

    return watch(locator, partial(election.add_listener, initial=True), show)


def _show(service: str, leader: Leader[bytes] | None, *, as_json: bool) -> None:
    if as_json:
        _output.json_line({"service": service, "leader": leader and _fields(leader)})
    elif leader is None:
        _output.line("-")
    else:
        _output.line(leader.id, leader.epoch, leader.data, widths=_WIDTHS)


def _fields(leader: Leader[bytes]) -> dict[str, str | int | None]:
    data = _output.text_or_base64("data", leader.data)
    return {"id": leader.id, "epoch": leader.epoch, **data}
