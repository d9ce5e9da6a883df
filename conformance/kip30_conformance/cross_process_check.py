"""The check before all others: that the clients of a store communicate across processes."""

from kip30 import StoreError
from kip30_conformance.clients.peer import PeerError
from kip30_conformance.harness import Harness

_NOT_SHARED = "other processes do not see what this client writes"


def require_sharing(harness: Harness) -> None:
    """Write a key here and let another process read it.

    Raises:
        StoreError: It cannot.
    """
    root = harness.unique_root()
    with harness.open(root) as client:
        version = str(client.storage().put("shared", "yes"))
        seen = _seen_by_another(harness, root)
    if seen != ["yes", version]:
        raise StoreError(f"{_NOT_SHARED}: it put a key, of which one read {seen or 'nothing'}")


def _seen_by_another(harness: Harness, root: str) -> list[str] | None:
    try:
        with harness.peer(root) as peer:
            seen: list[str] | None = peer.call("get", key="shared")
            return seen
    except PeerError as error:
        raise StoreError(f"{_NOT_SHARED}: another one fails: {error}") from error
