"""``kip30 new-backend``: a package for a store of your own, with what is left to write."""

from pathlib import Path

import click

from kip30.cli import _conformance_import, _parameters


@click.command("new-backend")
@click.argument("name")
@click.option(
    "--out",
    "folder",
    metavar="FOLDER",
    type=_parameters.FilePath(),
    help="Where the package goes; without it, kip30-NAME here.",
)
def command(name: str, folder: Path | None) -> None:
    """Write a package for a backend called NAME.

    It can be installed, and has a file for each concern, whose docstrings state the contract, and
    the conformance suite as its tests. They fail where code is missing. NAME is what
    operators will write as plugin.backend.

    Needs the extra "conformance".
    """
    target = folder or Path(f"kip30-{name}")
    for file in _conformance_import.part("new_backend").write(name, target):
        click.echo(file)
    click.echo(f"next: write the files that {target}/README.md lists", err=True)
