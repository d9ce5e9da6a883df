"""From what the store raises to kip30's errors: the only place that knows both."""

from kip30.errors import Kip30Error, OutcomeUnknownError, StoreError
from toystore.memory import Full


def translate(error: Exception) -> Kip30Error:
    """Return kip30's error for *error*; of what it does not know it expects the worst."""
    if isinstance(error, Kip30Error):
        return error
    translated = _translated(error)
    translated.__cause__ = error
    return translated


def _translated(error: Exception) -> Kip30Error:
    if isinstance(error, Full):
        return StoreError("the toy store is full: raise plugin.toy.capacity")
    return OutcomeUnknownError(f"the toy store failed: {error!r}")
