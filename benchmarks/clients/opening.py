"""The clients that are compared, by store; only the client library of one store is needed."""

from importlib import import_module
from typing import Any

from benchmarks.clients.interfaces import (
    Candidate,
    Elected,
    ScanReplay,
    ServerSide,
    Side,
    WatchedKey,
)
from benchmarks.clients.library import (
    LibraryCandidate,
    LibrarySide,
    LibraryWatchedKey,
    LockCandidate,
)
from benchmarks.store_address import SESSION_SECONDS, StoreAddress


def side(name: str, address: StoreAddress) -> Side:
    opened: Side
    if name == "raw":
        opened = _module(address.store).RawSide(address)
    elif address.is_embedded:
        opened = _module(address.store).LibrarySide(address)
    else:
        opened = LibrarySide(address)
    return opened


def raw_side(address: StoreAddress) -> ServerSide:
    """Open the client of a server alone."""
    opened: ServerSide = _module(address.store).RawSide(address)
    return opened


def watched_key(name: str, address: StoreAddress) -> WatchedKey:
    if name == "library":
        return LibraryWatchedKey(address)
    opened: WatchedKey = _module(address.store).RawWatchedKey(address)
    return opened


def candidate(
    name: str,
    address: StoreAddress,
    elected: Elected,
    number: int = 0,
    session_seconds: float = SESSION_SECONDS,
) -> Candidate:
    """Open a candidate: kip30's, a raw one, one of Tooz (with its pause), or one for a lock."""
    if name == "library":
        return LibraryCandidate(address, elected, number, session_seconds)
    if name in {"lock", "fair lock"}:
        return LockCandidate(address, elected, fair=name == "fair lock")
    opened: Candidate
    if name.startswith("tooz:"):
        pause_seconds = float(name.removeprefix("tooz:"))
        opened = _module("tooz").ToozCandidate(address, elected, pause_seconds)
    elif name == "kazoo":
        opened = _module("zookeeper").KazooLockCandidate(address, elected)
    else:
        opened = _module(address.store).RawCandidate(address, elected)
    return opened


def raw_scan(address: StoreAddress) -> ScanReplay:
    opened: ScanReplay = _module(address.store).RawScan(address)
    return opened


def _module(name: str) -> Any:
    return import_module(f"benchmarks.clients.{name}")
