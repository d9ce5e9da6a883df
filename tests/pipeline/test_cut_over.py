"""The commands of docs/howto/change-store.md, word for word, while programs write."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30 import BYTES, PluginLocator
from kip30_conformance.polling import eventually, time_scale

from .howto import PAGES, call, change, commands, old_and_new, running
from .stores import contents, fill, writing

PAGE = PAGES / "change-store.md"
VALUES = {f"app/k{number:03}": b"%d" % number for number in range(200)}
WRITERS = 4
pytestmark = [pytest.mark.large, pytest.mark.timeout(600)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with old_and_new(tmp_path):
        yield tmp_path


def test_the_page_moves_a_store_while_programs_write(folder: Path) -> None:
    old, new = folder / "old.properties", folder / "new.properties"
    fill(old, VALUES)
    preflight, migrate, feed, feed_once, diff = commands(PAGE)
    with writing(old, WRITERS, change):
        call(folder, preflight)
        call(folder, migrate)
        with running(folder, feed):
            fill(old, {"app/mark": b"here"})
            eventually(
                lambda: contents(new, ["app/mark"]) == {"app/mark": b"here"},
                within=120 * time_scale(),
                what="the feed has arrived at the mark",
            )
    call(folder, feed_once)
    call(folder, diff)
    with PluginLocator().startup(old) as before, PluginLocator().startup(new) as after:
        keys = sorted(before.storage(BYTES).list("app"))
        assert sorted(after.storage(BYTES).list("app")) == keys
    assert contents(new, keys) == contents(old, keys)
    assert len(keys) >= len(VALUES) + 1
