"""A real browser, and a server with a store of the test's own."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from kip30.serving.access_token import AccessToken
from kip30.serving.page_server import PageServer
from kip30_conformance.polling import time_scale
from tests.unit.serving.stored import Looked, looked_at

from .views import TOKEN, View

ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic"),
    *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
    "--disable-sync",
)
PATIENCE_MS = 20_000
REPORTS = """
window.reports = [];
addEventListener("securitypolicyviolation", (event) => reports.push(event.violatedDirective));
"""
"""Keeps what the browser would report to the origin, had it been given an address for that."""

PERIOD_SECONDS = 0.05

Open = Callable[..., View]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        assert "CI" not in os.environ, "install Chromium"
        pytest.skip("Chromium is not installed")
    expect.set_options(timeout=PATIENCE_MS * time_scale())
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS])
        yield found
        found.close()


@pytest.fixture
def looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looked]:
    with looked_at(tmp_path, monkeypatch) as found:
        yield found


@pytest.fixture
def server(looked: Looked) -> Iterator[PageServer]:
    with PageServer(
        looked.config, "127.0.0.1:0", AccessToken(TOKEN), period_seconds=PERIOD_SECONDS
    ) as server:
        yield server


@pytest.fixture
def view(browser: Browser) -> Iterator[Open]:
    """Return what opens an address in the browser; afterwards check what it has asked and said."""
    with ExitStack() as views:
        yield lambda address, **more: views.enter_context(opened(browser, address, **more))


@contextmanager
def opened(browser: Browser, address: str, *, says: bool = False, **more: Any) -> Iterator[View]:
    """Open *address*; *says* allows messages in the console."""
    context = browser.new_context(viewport={"width": 1100, "height": 760}, **more)
    context.set_default_timeout(PATIENCE_MS * time_scale())
    context.add_init_script(REPORTS)
    page: Page = context.new_page()
    found = View(page, [], [])
    page.on("console", lambda message: found.said.append(message.text))
    page.on("pageerror", lambda error: found.said.append(str(error)))
    page.on("request", lambda request: found.asked.append(request.url))
    try:
        page.goto(address)
        yield found
        origins = {urlsplit(url)[:2] for url in found.asked}
        assert origins <= {urlsplit(address)[:2]}
        assert [url for url in found.asked if TOKEN in url.partition("#")[0]] == []
        assert page.evaluate("window.reports") == []
        assert says or found.said == []
    finally:
        context.close()
