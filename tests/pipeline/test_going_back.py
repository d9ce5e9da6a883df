"""The commands of docs/howto/going-back.md, word for word, and those of the other pages parsed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kip30 import BYTES, PluginLocator
from kip30.cli import pipeline
from kip30.cli._exit_codes import Status
from kip30.cli.program import program
from kip30_conformance.clients.default_signals import heeded
from kip30_conformance.polling import eventually, time_scale

from .howto import PAGES, call, change, commands, old_and_new, running
from .store import write_properties
from .stores import fill, writing

PAGE = PAGES / "going-back.md"
VALUES = {f"app/k{number:03}": b"%d" % number for number in range(200)}
WRITERS = 1
"""A feed from etcd has a row for each of their changes."""


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Path]:
    with old_and_new(tmp_path):
        yield tmp_path


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the working directory: the same with two embedded stores."""
    for name in ("old", "new"):
        settings = {"plugin.backend": "embedded", "plugin.embedded.directory": tmp_path / name}
        write_properties(tmp_path / f"{name}.properties", settings)
    monkeypatch.chdir(tmp_path)
    with heeded():
        yield tmp_path


def all_of(config: Path) -> dict[str, bytes]:
    """Return the values of the namespace ``app``."""
    with PluginLocator().startup(config) as locator:
        storage = locator.storage(BYTES)
        return dict(storage.fetch_many(storage.list("app")).result())


def write_as_a_program(config: Path) -> None:
    """Change a key, create one, and delete one."""
    with PluginLocator().startup(config) as locator:
        storage = locator.storage(BYTES)
        storage.set("app/k050", b"of a program")
        storage.set("app/another", b"of a program")
        storage.delete("app/k051")


def called(words: list[str], status: Status = Status.OK) -> None:
    result = CliRunner().invoke(program, words, prog_name="kip30")
    assert result.exit_code == status, (words, result.stdout, result.stderr)


@pytest.mark.usefixtures("spark")
def test_the_page_brings_back_what_was_written_since(here: Path) -> None:
    """In this process, so the feed ends by itself each time."""
    old, new = here / "old.properties", here / "new.properties"
    snapshot, feed, feed_once, diff, plan, apply = commands(PAGE)
    for store in (old, new):
        fill(store, VALUES)
    called(snapshot)
    write_as_a_program(new)
    called([*feed, "--once"])
    fill(new, {"app/later": b"of a program"})
    called(feed_once)
    called([*diff[:-1], "equal"])
    changed = dict.fromkeys(("app/k050", "app/another", "app/later"), b"of a program")
    expected = VALUES | changed
    del expected["app/k051"]
    assert all_of(old) == all_of(new) == expected
    fill(old, {"app/extra": b"of a program"})
    called(diff, Status.REFUSED)
    called(plan, Status.REFUSED)
    called(apply)
    assert all_of(old) == expected


@pytest.mark.large
@pytest.mark.timeout(600)
def test_the_page_goes_back_while_programs_write(servers: Path) -> None:
    old, new = servers / "old.properties", servers / "new.properties"
    snapshot, feed, feed_once, diff, *_ = commands(PAGE)
    for store in (old, new):
        fill(store, VALUES)
    call(servers, snapshot)
    with running(servers, feed), PluginLocator().startup(old) as locator:
        storage = locator.storage(BYTES)
        with writing(new, WRITERS, change):
            fill(new, {"app/mark": b"here"})
            eventually(
                lambda: dict(storage.fetch_many(["app/mark"]).result()),
                within=120 * time_scale(),
                what="the feed has arrived at the mark",
            )
    call(servers, feed_once)
    call(servers, diff)
    assert all_of(old) == all_of(new)
    assert len(all_of(old)) > len(VALUES)


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_each_command_of_the_pages_is_one(page: Path) -> None:
    found = commands(page)
    assert found
    for _, job, *words in found:
        with pipeline.command.commands[job].make_context(job, words) as context:
            assert context.args == []
