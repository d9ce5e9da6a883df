"""All pages of a view, read one after the other; and those of several views of one store."""

from collections.abc import Iterator

from typing_extensions import override

from kip30.driver.closeable import Closeable
from kip30.errors import UnsupportedError
from kip30.runtime.resolution import Configuration, Resolved, resolve
from kip30.scanning import Page, Position, ScanDriver, View

_SPAN_ROWS = 20_000


class StoreScan(Closeable):
    """Reads one view after the other, over connections that are made once if the store can do so.

    Nothing is opened before the first view. `kip30.scanning.scanner` says what raises.
    """

    def __init__(self, config: Configuration = None) -> None:
        """Read the store that *config* chooses.

        Raises:
            ConfigError: A setting is wrong; the message names it.
        """
        self._resolved: Resolved = resolve(config)
        self._store: ScanDriver | None = None
        self._at: Position | None = None

    def pages(self, view: View) -> Iterator[Page]:
        """Yield the pages of *view*. End one iteration before the next one."""
        store, at = self._turned_to(view)
        for span in store.plan(at, _SPAN_ROWS):
            yield from store.scan(span, at)

    @override
    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()
        self._store = None

    def _turned_to(self, view: View) -> tuple[ScanDriver, Position]:
        if self._store is not None and self._at is not None:
            try:
                self._at = self._store.turn_to(view, self._at)
            except UnsupportedError:
                self.close()
            else:
                return self._store, self._at
        store = self._store = self._resolved.scanner(view)
        at = self._at = store.position()
        return store, at


def pages_of(config: Configuration, view: View) -> Iterator[Page]:
    """Yield the pages of *view* from the store that *config* chooses; `scanner` says what raises.

    The store is closed when the iterator ends or is closed.
    """
    with StoreScan(config) as scan:
        yield from scan.pages(view)
