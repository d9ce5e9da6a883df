"""``kip30 services``: every service that is led, or was."""

import click

from kip30.cli import _output
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.cli._unreadable import report_unreadable
from kip30.operations import ServiceStatus, read_directory


@click.command("services")
@click.option(
    "-a", "--all", "internal", is_flag=True, help="Print those of locks and coordinators, too."
)
@_output.prints_records
@opens_store
def command(choice: StoreChoice, *, internal: bool, output: Output) -> None:
    """Print all services with their leaders.

    A line is the service, its leader's id or "-", the newest epoch, and how many candidates wait
    in line; on Cassandra they form none. A leader whose record cannot be read is "?". etcd and
    Consul know a service without a leader only while candidates wait in line.
    """
    found = read_directory(choice.properties(), internal=internal)
    report_unreadable(found.unreadable)
    rows = (
        (one.service, _leader(one), "-" if one.epoch is None else one.epoch, one.waiting)
        for one in found.services
    )
    records = (one._asdict() for one in found.services)
    output.table(("SERVICE", "LEADER", "EPOCH", "WAITING"), rows, records)


def _leader(one: ServiceStatus) -> str:
    if not one.readable:
        return "?"
    return "-" if one.leader is None else one.leader
