"""A backend on a store that keeps bytes under keys: write a `ByteStore`, the rest is here."""

from kip30.driver.kit.byte_store.engine import ByteStoreEngine
from kip30.driver.kit.byte_store.interface import (
    ByteStore,
    Commit,
    CommitOutcome,
    KeyCondition,
    LeaseGoneError,
    Put,
    RecordsAtPosition,
    StoredRecord,
    StorePosition,
)

__all__ = [
    "ByteStore",
    "ByteStoreEngine",
    "Commit",
    "CommitOutcome",
    "KeyCondition",
    "LeaseGoneError",
    "Put",
    "RecordsAtPosition",
    "StorePosition",
    "StoredRecord",
]
