"""Recipes: one folder for each server, whose ``recipe.toml`` says how it is made and started."""

import difflib
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import InstallationError, UnknownServerError

RECIPE = "recipe.toml"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one server is made.

    Attributes:
        folder: Where the recipe and its files are.
        version: The pinned one. It stands in the file that the package manager reads.
        files: Copied to where the server is made.
        needs: Programs that must be there, each with what to install.
        environment: What the commands get besides the environment of this process.
        make: Commands; their working directory is where the server is made. Each keeps one
            process busy, since two servers are made at a time.
        start: The command that starts the server, up to where the server's own arguments
            begin. ``{folder}`` stands for the folder of the installed server.
    """

    folder: Path
    version: str
    files: Sequence[str]
    needs: Mapping[str, str]
    environment: Mapping[str, str]
    make: Sequence[Sequence[str]]
    start: Sequence[str]

    @property
    def name(self) -> str:
        """The server's name."""
        return self.folder.name

    @property
    def title(self) -> str:
        """Name and version: the name of the installed server's folder."""
        return f"{self.name}-{self.version}"

    def check_needs(self) -> None:
        """Raise `InstallationError` if a program is missing that the commands need."""
        missing = [
            f"{program} is missing, install {what}"
            for program, what in self.needs.items()
            if not shutil.which(program)
        ]
        if missing:
            raise InstallationError("; ".join(missing))

    def copy_files(self, folder: Path) -> None:
        """Copy the recipe's files into *folder*."""
        for name in self.files:
            shutil.copy(self.folder / name, folder)


def known(folder: Path) -> list[str]:
    """Return the names of the servers that have a recipe in *folder*."""
    return sorted(path.parent.name for path in folder.glob(f"*/{RECIPE}"))


def choose(folder: Path, names: Sequence[str]) -> list[Recipe]:
    """Return the recipes of *names*, each once; all of them if *names* is empty.

    Raises:
        UnknownServerError: *folder* has no recipe of that name, or none at all.
    """
    there = known(folder)
    if not there:
        raise UnknownServerError(f"there is no recipe in {folder}")
    for name in names:
        if name not in there:
            raise UnknownServerError(_unknown(name, there))
    return [read(folder / name) for name in dict.fromkeys(names or there)]


def read(folder: Path) -> Recipe:
    """Return the recipe in *folder*."""
    with (folder / RECIPE).open("rb") as file:
        content: dict[str, Any] = tomllib.load(file)
    return Recipe(
        folder,
        _version(folder, **content["version"]),
        content["files"],
        content.get("needs", {}),
        content.get("environment", {}),
        content["make"],
        content["start"],
    )


def _version(folder: Path, file: str, pattern: str) -> str:
    found = re.search(pattern, (folder / file).read_text())
    if not found:
        raise InstallationError(f"no version in {folder / file}: nothing is like {pattern}")
    return found[1]


def _unknown(name: str, there: Sequence[str]) -> str:
    nearest = difflib.get_close_matches(name, there, 1)
    hint = f"did you mean {nearest[0]}? " if nearest else ""
    return f"there is no server {name!r}; {hint}known: {', '.join(there)}"
