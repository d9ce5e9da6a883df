"""From what the socket and the server say to kip30's errors. The question is: was it done?"""

from kip30.driver.kit.byte_store import LeaseGoneError
from kip30.errors import (
    ClosedError,
    Kip30Error,
    OutcomeUnknownError,
    StoreError,
    UnavailableError,
)

_REFUSALS: dict[str, Kip30Error] = {
    "too large": StoreError("the line store takes no record above 1 MiB"),
    "no lease": LeaseGoneError("the line store has ended the lease"),
}


def unsent(error: OSError, server: str) -> Kip30Error:
    """Return the error for a request that never left."""
    return UnavailableError(f"the line store at {server} cannot be reached: {error}")


def lost(error: Exception, server: str, *, writes: bool, closed: bool) -> Kip30Error:
    """Return the error for a request that left, and whose answer did not come."""
    if writes:
        return OutcomeUnknownError(f"no answer from the line store at {server}: {error}")
    if closed:
        return ClosedError("closed while the operation was under way")
    return UnavailableError(f"no answer from the line store at {server}: {error}")


def refused(code: str, *, writes: bool) -> Kip30Error:
    """Return the error for what the server refused; of a code it does not know, the worst."""
    known = _REFUSALS.get(code)
    if known is not None:
        return type(known)(str(known))
    unknown = OutcomeUnknownError if writes else UnavailableError
    return unknown(f"the line store failed: {code}")
