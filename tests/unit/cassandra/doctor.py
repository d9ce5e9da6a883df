"""The findings of ``kip30 doctor`` about a store that is out of order."""

from typing import NamedTuple

from click.testing import CliRunner

from kip30.cli.program import program
from kip30.config import Written


class Visit(NamedTuple):
    """The failures that a run found, and its exit code."""

    wrong: list[str]
    exit_code: int


def visit(**settings: Written) -> Visit:
    """Run the doctor on the store that *settings* reach."""
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    result = CliRunner().invoke(program, ["doctor", *words], prog_name="kip30")
    lines = result.stdout.splitlines()
    return Visit([line for line in lines if line.startswith("FAILED")], result.exit_code)


def diagnosis(**settings: Written) -> str:
    """Return the only failure, which keeps a client with *settings* from connecting."""
    (wrong,), exit_code = visit(**settings)
    assert exit_code == 3
    _, step, _, detail = wrong.split("\t")
    assert step == "connect"
    return detail
