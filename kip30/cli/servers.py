"""``kip30 servers``: real servers of a store, for as long as the command runs."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from kip30.cli import _conformance_import, _parameters, storm
from kip30.cli._failures import say
from kip30.cli._follow import stay
from kip30.cli._groups import Commands


@click.group("servers", cls=Commands, no_args_is_help=False)
def command() -> None:
    """Run real servers of a store, for experiments and tests."""


@command.command()
@click.argument("servers", nargs=-1)
@click.option("--older", is_flag=True, help="Those of Debian 12 instead, on that system.")
def install(servers: Sequence[str], *, older: bool) -> None:
    """Install SERVERS, all of them if none is named, where the other commands find them.

    They come from the package registries of Maven and Go, as mvn and go are configured on this
    machine, and go into $KIP30_SERVERS, else into ${XDG_CACHE_HOME:-~/.cache}/kip30-servers. What
    is installed is left alone. Exits with 1 if some could not be built; the rest is installed.
    """
    program: Path = _conformance_import.part("servers.installed").installer()
    recipes = ("--recipes", str(program.with_name("debian"))) if older else ()
    # Instead of this process, so that signals and the exit code are its own.
    os.execv(sys.executable, [sys.executable, str(program), *recipes, "--", *servers])  # noqa: S606


@command.command()
@click.argument("store")
@_parameters.nodes
@click.option(
    "--folder",
    metavar="FOLDER",
    type=_parameters.FilePath(),
    help="Folder in which configuration, data and logs are kept; else they are deleted.",
)
def up(store: str, *, nodes: int, folder: Path | None) -> int:
    """Start servers of STORE and print the properties that reach them, until interrupted.

    They listen on the loopback interface alone, and end with this command, however it ends. What
    is printed is a properties file for --config. `kip30 servers install` installs the servers.

    Needs the extra "conformance".
    """
    servers = _conformance_import.part("servers")
    _conformance_import.part("servers.process_tree")  # the supervisor needs it, in its process
    with servers.start(store, nodes, folder=folder) as ensemble:
        for key, value in ensemble.settings().items():
            click.echo(f"{key}={value}")
        say(f"{store} {ensemble.version} is running; use stdout as --config; Ctrl-C ends it")
        return stay(None, lambda _: None, lambda _: None)


command.add_command(storm.command)
