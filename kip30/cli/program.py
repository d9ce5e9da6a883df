"""The ``kip30`` command: its subcommands, each imported when it is needed."""

import sys
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

import click
from typing_extensions import override

from kip30 import __version__
from kip30.cli import _output
from kip30.cli._failures import guarded, reader_gone, set_up_logging
from kip30.cli._groups import Commands
from kip30.cli._help_texts import with_help
from kip30.cli._signals import UnwindingOnSignals
from kip30.cli._standard_streams import buffer_output, occupy_standard_streams
from kip30.cli._store_options import StoreChoice, store_options

COMMANDS = {
    "run": "Run CMD while, and only while, this process leads SERVICE.",
    "coordinate": "Run CMD for a share of the work that no other process of GROUP has.",
    "coordinate-status": "Print the members of GROUP, each with its share.",
    "coordinate-delete": "Delete the records of GROUP, which no longer has members.",
    "leader": "Print the leader of SERVICE.",
    "pause": "Keep all candidates for each SERVICE from being elected, until `kip30 resume`.",
    "resume": "End the pause of each SERVICE.",
    "step-down": "Let the leader of SERVICE end its term, and wait until another candidate leads.",
    "hand-over": "Let the leader of SERVICE end its term, and wait until CANDIDATE leads.",
    "terms": "Print the latest terms of SERVICE, the oldest first.",
    "status": "Print what there is in the store, and what wants attention.",
    "serve": "Serve a page that shows the store, until interrupted, and print its address.",
    "services": "Print all services with their leaders.",
    "groups": "Print all groups that have members or bans, and how many.",
    "group": "List, watch and join groups, and keep members out.",
    "kv": "Read and change keys and values.",
    "backends": "List the stores: whether installed, what they offer, and their limits.",
    "config": "Print the reference of all settings, or check those in use.",
    "doctor": "Connect to the store, test every operation, and show how long it takes.",
    "prune": "Remove the remains of unused services, groups and namespaces.",
    "conform": "Prove that the store keeps kip30's promises.",
    "simulate": "Run the core in virtual time, with faults, and judge its promises.",
    "new-backend": "Write a package for a backend called NAME.",
    "pipeline": "Copy, compare and follow the data of stores, with Spark.",
    "servers": "Run real servers of a store, for experiments and tests.",
    "completion": "Print the code that makes SHELL complete kip30.",
    "help": "Print the help of a command, as its --help does.",
}
"""Every command and what it does, so that ``--help`` need not import them all."""


class Program(Commands):
    """Finds command NAME as ``command`` in the module ``kip30.cli.NAME``, and never raises."""

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"kip30.cli.{cmd_name.replace('-', '_')}").command
        return with_help(command)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    @override
    def invoke(self, ctx: click.Context) -> int:
        return guarded(partial(super().invoke, ctx))

    @override
    def get_help(self, ctx: click.Context) -> str:
        with_help(self)
        return super().get_help(ctx)

    @override
    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        try:  # this prints the help and the version, and `main` of click exits with 1
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError as error:
            raise click.exceptions.Exit(reader_gone()) from error

    @override
    def main(self, *args: Any, **extra: Any) -> NoReturn:
        extra["standalone_mode"] = False
        _output.want_json(wanted=False)
        try:
            sys.exit(guarded(partial(super().main, *args, **extra)))
        finally:
            _output.want_json(wanted=False)  # for what this process does next


@click.group(
    cls=Program,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
)
@click.version_option(__version__, message="%(prog)s %(version)s")
@store_options
@click.pass_context
def program(context: click.Context, choice: StoreChoice) -> None:
    """Leader election, group membership and key-value storage over the store you choose.

    The store is chosen by a properties file: --config FILE, else $KIP30_CONFIG, else
    ./kip30.properties. Without configuration the only installed store is used: the embedded
    one, unless an extra installed another. The options of the store may also be given after the
    command, and take precedence there.
    """
    context.obj = choice
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main() -> NoReturn:
    """Run the command line and exit."""
    occupy_standard_streams()
    buffer_output()
    set_up_logging()
    with UnwindingOnSignals():
        program.main(prog_name="kip30")
