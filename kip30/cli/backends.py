"""``kip30 backends``: which stores there are and what they can do."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from kip30.cli import output
from kip30.cli.opening import StoreChoice, opens_store
from kip30.config import CommonSettings, build
from kip30.driver import Backend
from kip30.errors import ConfigError
from kip30.names import MAX_NAME_BYTES
from kip30.registry import find, names

_KIB = 1024


@dataclass(frozen=True, slots=True)
class Candidate:
    """A registered backend: its class, or why that cannot be had."""

    name: str
    backend: type[Backend] | None
    problem: str = ""

    @property
    def capabilities(self) -> list[str]:
        """What the store offers beyond what every store does."""
        return sorted(one.value for one in self.backend.capabilities) if self.backend else []


def candidates(paths: Sequence[Path]) -> list[Candidate]:
    """Return all registered backends."""
    return [_candidate(name, paths) for name in names(paths)]


@click.command("backends")
@output.as_json
@opens_store
def command(choice: StoreChoice, *, as_json: bool) -> None:
    """List the stores: whether installed, what they offer, and their limits."""
    found = candidates(build(CommonSettings, choice.properties()).additional_paths)
    if as_json:
        for one in found:
            output.json_line(_record(one))
    else:
        titles = ("STORE", "INSTALLED", "OFFERS", "LONGEST NAME", "LARGEST VALUE")
        output.table(titles, [_row(one) for one in found])


def _candidate(name: str, paths: Sequence[Path]) -> Candidate:
    try:
        return Candidate(name, find(name, paths))
    except ConfigError as error:
        return Candidate(name, None, str(error))


def _row(one: Candidate) -> tuple[str, ...]:
    if one.backend is None:
        return (one.name, f"no: {one.problem}", "", "", "")
    limits = one.backend.limits
    sizes = (f"{MAX_NAME_BYTES} bytes", f"{limits.value_bytes // _KIB} KiB")
    return (one.name, "yes", ", ".join(one.capabilities), *sizes)


def _record(one: Candidate) -> dict[str, object]:
    if one.backend is None:
        return {"name": one.name, "installed": False, "problem": one.problem}
    limits = one.backend.limits
    return {
        "name": one.name,
        "installed": True,
        "capabilities": one.capabilities,
        "name_bytes": MAX_NAME_BYTES,
        "value_bytes": limits.value_bytes,
    }
