"""A hint that a store without keys of kip30's holds data of another program."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

from kip30.driver.scanning import Layout, View
from kip30.errors import Kip30Error
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.stores.endpoints import Endpoint, StoreEndpoint
from kip30.runtime.resolution import scanner

_MOST_KEYS = 1_000
_SPAN_ROWS = 1_000


def with_hint(report: Report, source: Endpoint) -> Report:
    """Return *report*, which says so if *source* is empty because it is no data of kip30's.

    A tree of another program has no keys of kip30's, so a job that should have been called with
    ``raw:`` is done at once.
    """
    if not isinstance(source, StoreEndpoint) or source.layout is not Layout.KIP30:
        return report
    if (
        report.ending is not JobEnding.DONE
        or report.counts.get("rows", 1)
        or not _is_foreign(source)
    ):
        return report
    namespace = source.config.resolve().context.namespace
    reason = f"no keys under /{namespace}; raw:FILE reads the tree as it is"
    return replace(report, ending=JobEnding.FINDINGS, reason=reason)


def _is_foreign(source: StoreEndpoint) -> bool:
    """Return whether one of the first keys is not below the root of kip30's data."""
    root = source.config.resolve().context.namespace.encode().strip(b"/") + b"/"
    try:
        keys = list(islice(_keys(source), _MOST_KEYS))
    except Kip30Error:  # this store has no raw view, or this user may not read it
        return False
    return any(not (key.strip(b"/") + b"/").startswith(root) for key in keys)


def _keys(source: StoreEndpoint) -> Iterator[bytes]:
    with scanner(source.config.properties(), View(layout=Layout.RAW)) as store:
        at = store.position()
        for span in store.plan(at, _SPAN_ROWS):
            for page in store.scan(span, at):
                yield from page.keys
