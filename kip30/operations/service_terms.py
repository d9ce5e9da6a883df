"""The latest terms of a service; see `kip30.runtime.past_terms`."""

from collections.abc import Sequence

from kip30.codecs import BYTES
from kip30.locator import PluginLocator
from kip30.runtime.past_terms import PastTerm, decode_past_terms, past_terms_key


def read_past_terms(locator: PluginLocator, service: str) -> Sequence[PastTerm]:
    """Return the last 20 terms of *service* that its leaders have noted, the oldest first.

    Leaders note them whose setting ``plugin.operations`` is true, as by default for ``kip30 run``,
    a moment after the election. Terms of others are missing.

    Raises:
        InvalidNameError: The name cannot be that of a service, or is too long for the record.
        UnavailableError: The store did not answer in time.
        StoreError: The record is another program's, a later kip30's, or damaged.
    """
    found = locator.storage(BYTES).get(str(past_terms_key(service)))
    return () if found is None else decode_past_terms(service, found.value)


def began_at(terms: Sequence[PastTerm], epoch: int) -> float | None:
    """Return when the term of *epoch* that lasts began, in seconds since 1970; None: not noted."""
    for term in reversed(terms):
        if term.epoch == epoch and term.until is None:
            return term.since
    return None
