"""The pictures of docs/serve.md: ``KIP30_PICTURES=docs/pages pytest tests/browser`` makes them."""

import os
import time
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import expect

from kip30 import PluginLocator
from kip30.codecs import BYTES
from kip30.runtime.bans import Ban, Bans, bans_key, encode_bans
from kip30.runtime.directives import Directives, ElectionPause, directives_key, encode_directives
from kip30.runtime.past_terms import (
    PastTerm,
    decode_past_terms,
    encode_past_terms,
    past_terms_key,
)
from kip30.serving.page_server import PageServer
from kip30_conformance.polling import eventually
from tests.unit.serving.stored import Looked

from .conftest import Open
from .test_page import at, elect
from .views import View, address_of

ROOT = Path(__file__).parents[2]
MOST_BYTES = 150_000
HOUR = 3600


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    given = os.environ.get("KIP30_PICTURES")
    return ROOT / given if given else tmp_path


def take(view: View, file: Path) -> None:
    # The directory of the test would be another one in each picture.
    view.page.evaluate("if (overview) { overview.place = '/var/lib/myapp'; showState(); }")
    view.page.screenshot(path=file)
    assert 5_000 < file.stat().st_size < MOST_BYTES


def fill(locator: PluginLocator) -> None:
    """Put into the store what an operator may find in one."""
    now, storage = time.time(), locator.storage(BYTES)
    terms, election = str(past_terms_key("billing")), locator.leader_election("billing")

    def has_noted(number: int) -> bool:
        found = storage.get(terms)
        return found is not None and len(decode_past_terms("billing", found.value)) == number

    for number in range(1, 4):
        with election.lead("web1-4711", ""):
            pass
        eventually(partial(has_noted, number))
    past = [
        PastTerm("a", 1, "web1-4711", now - 9 * HOUR, now - 6 * HOUR, "stepped down"),
        PastTerm("b", 2, "web2-812", now - 6 * HOUR, now - 5.5 * HOUR, "lost: not renewed"),
        PastTerm("c", 3, "web3-99", now - 5 * HOUR, now - HOUR, "resigned"),
    ]
    storage.set(terms, encode_past_terms(past))
    for service, candidate in (("billing", "web1-4822"), ("reports", "batch2-77")):
        elect(locator, service, candidate)
    eventually(partial(has_noted, 4))
    pause = ElectionPause("ops@web1", now, "upgrade of the database", None)
    storage.set(str(directives_key("cleanup")), encode_directives(Directives(1, pause)))
    for number in range(1, 4):
        locator.group_membership("ingest").join(f"worker-{number}", "")
    ban = Ban("worker-4", now + HOUR, now, "ops@web1", "bad disk")
    storage.set(str(bans_key("ingest")), encode_bans(Bans(1, (ban,))))
    locator.group_membership("kip30.candidates/exports").join("place", "")
    for key in ("config/limit", "config/mail/host", "jobs/last-run"):
        storage.set(key, b"2026-11-30")


def test_five_states_are_pictured(
    looked: Looked, server: PageServer, view: Open, folder: Path
) -> None:
    fill(looked.locator)
    found = view(at(server))
    found.connection("live")
    found.shows_row("cleanup", "paused")
    found.page.locator("#keys > summary").click()
    expect(found.page.locator("#keys li").first).to_contain_text("config/")
    take(found, folder / "live.png")
    found.row("billing").get_by_role("button").click()
    expect(found.page.locator(".timeline .term")).to_have_count(4)
    take(found, folder / "terms.png")
    dark = view(at(server), color_scheme="dark")
    expect(dark.page.locator("#attention")).to_contain_text("exports has had no leader")
    take(dark, folder / "attention-dark.png")
    looked.away()
    dark.connection("the store cannot be read since")
    take(dark, folder / "store-away-dark.png")
    without = view(address_of(server.address.port, "").partition("#")[0])
    expect(without.page.get_by_label("Token")).to_be_visible()
    take(without, folder / "token.png")
