"""``kip30 hand-over``: a certain candidate leads a service next."""

import click

from kip30.cli import _output
from kip30.cli._directed import ends_term, print_directed, stop_leader
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, opens_store


@click.command("hand-over")
@click.argument("service")
@click.argument("candidate")
@ends_term
@_output.prints_records
@opens_store
def command(  # noqa: PLR0913  one argument per option
    choice: StoreChoice,
    service: str,
    candidate: str,
    *,
    epoch: int | None,
    wait_seconds: float | None,
    reason: str,
    confirmed: bool,
    output: Output,
) -> None:
    """Let the leader of SERVICE end its term, and wait until CANDIDATE leads.

    As `kip30 step-down`, but all others hold back for CANDIDATE, up to 30 s after the term has
    ended. `kip30 leader SERVICE --all` prints the candidates that wait. It works without a leader
    as well, and while the service is paused.
    """
    with choice.open() as locator:
        done = stop_leader(
            locator, service, candidate, epoch, wait_seconds, reason=reason, confirmed=confirmed
        )
    print_directed(done, output)
