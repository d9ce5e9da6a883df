"""All pages of a view, read one after the other."""

from collections.abc import Iterator

from kip30.runtime.resolution import Configuration
from kip30.scanning import Page, View, scanner

_SPAN_ROWS = 20_000


def pages_of(config: Configuration, view: View) -> Iterator[Page]:
    """Yield the pages of *view* from the store that *config* chooses; `scanner` says what raises.

    The store is closed when the iterator ends or is closed.
    """
    with scanner(config, view) as store:
        at = store.position()
        for span in store.plan(at, _SPAN_ROWS):
            yield from store.scan(span, at)
