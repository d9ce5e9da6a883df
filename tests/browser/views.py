"""A page in the browser, as a test reads it."""

from typing import NamedTuple

from playwright.sync_api import Locator, Page, expect

TOKEN = "0123456789abcdef"  # noqa: S105  of the tests alone


class View(NamedTuple):
    """A page, the addresses that it has asked for, and what its console says."""

    page: Page
    asked: list[str]
    said: list[str]

    def row(self, name: str) -> Locator:
        return self.page.locator("tr", has=self.page.get_by_role("button", name=name, exact=True))

    def shows_row(self, name: str, *texts: str) -> None:
        """Wait until the row *name* has *texts*."""
        for text in texts:
            expect(self.row(name)).to_contain_text(text)

    def connection(self, text: str) -> None:
        """Wait until the page says that of its connection."""
        expect(self.page.locator("#connection")).to_contain_text(text)


def address_of(port: int, token: str = TOKEN) -> str:
    return f"http://127.0.0.1:{port}/#token={token}"
