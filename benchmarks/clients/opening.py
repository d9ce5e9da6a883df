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
from benchmarks.clients.library import LibraryCandidate, LibrarySide, LibraryWatchedKey
from benchmarks.store_address import StoreAddress


def side(name: str, address: StoreAddress) -> Side:
    opened: Side
    if name == "raw":
        opened = _module(address).RawSide(address)
    elif address.is_embedded:
        opened = _module(address).LibrarySide(address)
    else:
        opened = LibrarySide(address)
    return opened


def raw_side(address: StoreAddress) -> ServerSide:
    """Open the client of a server alone."""
    opened: ServerSide = _module(address).RawSide(address)
    return opened


def watched_key(name: str, address: StoreAddress) -> WatchedKey:
    if name == "library":
        return LibraryWatchedKey(address)
    opened: WatchedKey = _module(address).RawWatchedKey(address)
    return opened


def candidate(name: str, address: StoreAddress, elected: Elected) -> Candidate:
    if name == "library":
        return LibraryCandidate(address, elected)
    if name == "raw":
        raw: Candidate = _module(address).RawCandidate(address, elected)
        return raw
    from benchmarks.remote.tooz_roles import ToozCandidate  # noqa: PLC0415  few stores need it

    return ToozCandidate(address, elected, pause_seconds=float(name.partition(":")[2]))


def raw_scan(address: StoreAddress) -> ScanReplay:
    opened: ScanReplay = _module(address).RawScan(address)
    return opened


def _module(address: StoreAddress) -> Any:
    return import_module(f"benchmarks.clients.{address.store}")
