"""``kip30 step-down``: the leader of a service ends its term."""

import click

from kip30.cli import _output
from kip30.cli._directed import ends_term, print_directed, stop_leader
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, opens_store


@click.command("step-down")
@click.argument("service")
@ends_term
@_output.prints_records
@opens_store
def command(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    service: str,
    *,
    epoch: int | None,
    wait_seconds: float | None,
    reason: str,
    confirmed: bool,
    output: Output,
) -> None:
    """Let the leader of SERVICE end its term, and wait until another candidate leads.

    The leader ends its own term: the command of `kip30 run` gets SIGTERM and its grace first. It
    does not lead again before another one has led, or 30 s have passed. A service that is paused
    stays without a leader. Exits with 1 if no candidate leads or waits, or if the leader does not
    step down in time; the directive is withdrawn then.
    """
    with choice.open() as locator:
        done = stop_leader(
            locator, service, None, epoch, wait_seconds, reason=reason, confirmed=confirmed
        )
    print_directed(done, output)
