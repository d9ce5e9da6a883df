"""``kip30 prune``: removing the remains of what is no longer used."""

import click

from kip30.cli import _output, _parameters
from kip30.cli._output import Output
from kip30.cli._store_options import StoreChoice, opens_store
from kip30.codecs import BYTES
from kip30.driver import Capability
from kip30.driver.pruning import prune
from kip30.driver.records import Kind
from kip30.locator import PluginLocator
from kip30.operations import prune_directives

_OF_DIRECTIVES = {Capability.SCANNING, Capability.COMPARE_AND_SET}
_KINDS = {"services": Kind.SERVICE, "groups": Kind.GROUP, "namespaces": Kind.NAMESPACE}


@click.command("prune")
@click.option(
    "--unused",
    metavar="TIME",
    type=_parameters.age,
    required=True,
    help="Minimum time since the last use: a number with s, min, h or d, such as 30d.",
)
@click.option(
    "-n", "--dry-run", is_flag=True, help="Remove nothing, and count what would be removed."
)
@_output.prints_records
@opens_store
def command(choice: StoreChoice, *, unused: float, dry_run: bool, output: Output) -> None:
    """Remove the remains of unused services, groups and namespaces.

    Some stores keep a little of each service that was once led, each group that had members and
    each namespace that had keys: prints how many of these were removed. Names with a leader,
    members or keys stay. Epochs and versions continue as if nothing had been removed. Records of
    directives that ask nothing go, too, with their log, if the service has had no leader and no
    directive for that time.

    It can be run at any time, and again after a failure. Upgrade all programs before: an older
    kip30 does not know how epochs continue. The documentation of each store says what it keeps.
    """
    properties = choice.properties()
    with PluginLocator().startup(properties) as locator:
        counts = prune(locator.backend, unused, dry_run=dry_run)
        has_directives = locator.backend.capabilities >= _OF_DIRECTIVES
        directives = (
            prune_directives(properties, locator.storage(BYTES), unused, dry_run=dry_run)
            if has_directives
            else 0
        )
    found = {name: counts.get(kind, 0) for name, kind in _KINDS.items()} | {
        "directives": directives
    }
    titles = ("LEFT OF", "WOULD GO" if dry_run else "REMOVED")
    output.table(titles, found.items(), [{**found, "dry_run": dry_run}])
