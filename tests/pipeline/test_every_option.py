"""Each option of each job, through the command line."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kip30.cli import pipeline
from kip30.cli._exit_codes import Status
from kip30.cli._store_options import STORE_OPTIONS
from kip30.cli.program import program
from kip30_conformance.clients.default_signals import heeded

from .store import embedded

pytestmark = pytest.mark.usefixtures("spark")

ELSEWHERE = {"remote", "master", "properties_file", "help"}
"""Tried with servers or a Spark of their own, in test_connect_server.py, test_command_checks.py and
test_properties_file.py."""


@pytest.fixture(autouse=True)
def heeded_signals() -> Iterator[None]:
    with heeded():
        yield


class Tried:
    """Calls jobs, and notes which options each was given."""

    def __init__(self) -> None:
        self.options: defaultdict[str, set[str]] = defaultdict(set)

    def __call__(self, job: str, *words: object, status: Status = Status.OK) -> None:
        written = list(map(str, words))
        self.options[job] |= {one.removeprefix("--") for one in written if one.startswith("--")}
        result = CliRunner().invoke(program, ["pipeline", job, *written], prog_name="kip30")
        assert result.exit_code == status, (job, written, result.stdout, result.stderr)


def store(folder: Path, name: str, keys: int) -> Path:
    (folder / name).mkdir()
    return embedded(folder / name, keys)


def options_of(job: click.Command) -> set[str]:
    """Return the options of *job* itself, not those of the store or of another place to run."""
    return {
        param.opts[-1].removeprefix("--")
        for param in job.params
        if param.name not in {*STORE_OPTIONS, *ELSEWHERE} and param.opts[0].startswith("-")
    }


@pytest.mark.large
def test_each_option_of_each_job_does_something(tmp_path: Path) -> None:
    a, b, c, d = (
        store(tmp_path, name, keys) for name, keys in zip("abcd", (9, 0, 0, 0), strict=True)
    )
    tried, out = Tried(), tmp_path
    scan: tuple[object, ...] = ("--request-seconds", 20, "--span-rows", 4, "--json")
    conf = ("--conf", "spark.kip30.unused=1")
    table = ("--output", "tsv", "--no-headers")
    tried("preflight", a, b, *conf, "--json")
    tried("preflight", a, "--request-seconds", 20, *table)
    tried("preflight", a, "--span-rows", 4, status=Status.USAGE)
    tried("preflight", a, "--out", out / "p", status=Status.USAGE)
    tried("preflight", a, "--resume", status=Status.USAGE)
    tried("snapshot", a, "--out", out / "s", "--show-claims", *scan, *conf)
    tried("snapshot", b, "--out", out / "t", *table)
    for form in (("--json",), table):
        tried("verify", out / "s", *form)
        tried("status", out / "s", *form)
        tried("bundle", "--out", out / f"bundle-{len(form)}", *form)
    tried("snapshot", a, "--out", out / "s", "--resume", status=Status.USAGE)  # it is done
    writing = ("--rate", 10_000, "--no-fence", "--on-conflict", "keep", "--map", "ns=moved")
    more = ("--accept-store", "any", *conf)
    tried("restore", out / "s", b, "--out", out / "r", *writing, *scan, *more)
    tried("restore", out / "s", b, "--out", out / "r", "--resume", status=Status.USAGE)
    tried("restore", out / "t", b, "--out", out / "none", *table)
    tried("restore", out / "s", b, "--out", out / "x", "--into", "n", status=Status.USAGE)
    tried("migrate", a, c, "--out", out / "m", *writing, *scan, *more)
    tried("migrate", a, c, "--out", out / "m", "--resume", status=Status.USAGE)
    tried("migrate", a, c, "--out", out / "y", "--into", "n", status=Status.USAGE)
    empty = ("--allow-empty", "--full", *scan, *conf)
    tried("diff", a, d, "--out", out / "compared", *empty, status=Status.REFUSED)
    tried("diff", a, d, "--out", out / "compared", "--resume", status=Status.USAGE)
    tried("diff", a, d, "--out", out / "differing", *table, status=Status.REFUSED)
    tried("diff", a, d, "--out", out / "z", "--into", "n", status=Status.USAGE)
    tried("repair", out / "compared", "--out", out / "plan", "--json", status=Status.REFUSED)
    apply = ("--apply", "--delete-extra", "--plan", out / "plan", "--rate", 10_000, "--no-fence")
    tried("repair", out / "compared", "--out", out / "applied", *apply, *conf, *table)
    tried(
        "repair",
        out / "compared",
        "--out",
        out / "applied",
        *apply,
        "--resume",
        status=Status.USAGE,
    )
    tried("repair", out / "compared", "--out", out / "v", *scan, status=Status.USAGE)
    feeding: tuple[object, ...] = ("--interval", 1, "--max-delete", 1, "--overwrite", "--once")
    limits = ("--rate", 10_000, "--accept-store", "any", "--request-seconds", 20, "--json", *conf)
    tried("migrate", a, b, "--out", out / "again", *table)
    tried("feed", a, b, "--after", out / "again", "--out", out / "f", *feeding, *limits)
    tried("feed", a, b, "--out", out / "f", "--once", "--resume", *table)
    tried("feed", a, b, "--out", out / "g", "--into", "n", status=Status.USAGE)
    tried("feed", a, "--out", out / "h", "--span-rows", 4, status=Status.USAGE)
    for form in (("--json",), table):
        tried("prepare", *form, status=Status.USAGE)  # here Java runs already
    jobs = pipeline.command.commands
    assert {name: options_of(job) - tried.options[name] for name, job in jobs.items()} == {
        name: set() for name in jobs
    }
