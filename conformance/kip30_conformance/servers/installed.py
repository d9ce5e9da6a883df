"""Servers in the cache folder, where ``kip30 servers install`` puts them."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kip30 import ConfigError

_RECEIPT = "RECEIPT.json"


class ServerMissingError(ConfigError):
    """The server is not installed; the message says how to install it."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A server on this machine.

    Attributes:
        version: Such as ``3.6.15``.
        command: The command that starts it, without the server's own arguments.
    """

    version: str
    command: tuple[str, ...]


def cache() -> Path:
    """Return the cache folder: ``$KIP30_SERVERS``, else ``kip30-servers`` among other caches."""
    own = os.environ.get("KIP30_SERVERS")
    if own:
        return Path(own).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "kip30-servers"


def installer() -> Path:
    """Return the program that installs servers; its recipes are beside it."""
    package = Path(__file__).resolve().parents[1]
    of_wheel, of_checkout = package / "docker", package.parents[1] / "docker"
    return (of_wheel if of_wheel.is_dir() else of_checkout) / "install-servers"


def find(name: str, version: str | None = None) -> Installed:
    """Return the installed server *name*, of the newest version unless one is asked for.

    Raises:
        ServerMissingError: It is not installed.
    """
    there = [one for one in _installed(name) if version in (None, one.version)]
    if not there:
        wanted = name if version is None else f"{name} {version}"
        older = "" if version is None else "--older "
        raise ServerMissingError(
            f"{wanted} is not installed in {cache()}: run `kip30 servers install {older}{name}`"
        )
    return max(there, key=_age)


def _installed(name: str) -> Iterator[Installed]:
    for receipt in cache().glob(f"{name}-*/{_RECEIPT}"):
        content: dict[str, Any] = json.loads(receipt.read_text())
        if content["name"] == name:
            folder = str(receipt.parent)
            words = (word.replace("{folder}", folder) for word in content["start"])
            yield Installed(content["version"], tuple(words))


def _age(one: Installed) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", one.version)))
