"""The two sides of a comparison, by store; only the client library of one store is needed."""

from importlib import import_module
from typing import Any

from benchmarks.remote.candidate import Candidate, Elected
from benchmarks.remote.library import LibraryCandidate, LibrarySide, LibraryWire
from benchmarks.remote.side import Side
from benchmarks.remote.wire import Wire
from benchmarks.store_address import StoreAddress


def side(name: str, address: StoreAddress) -> Side:
    opened: Side = (
        LibrarySide(address) if name == "library" else _raw(address, "side").RawSide(address)
    )
    return opened


def wire(name: str, address: StoreAddress) -> Wire:
    opened: Wire = (
        LibraryWire(address) if name == "library" else _raw(address, "wire").RawWire(address)
    )
    return opened


def candidate(name: str, address: StoreAddress, elected: Elected) -> Candidate:
    if name == "library":
        return LibraryCandidate(address, elected)
    if name == "raw":
        raw: Candidate = _raw(address, "candidate").RawCandidate(address, elected)
        return raw
    from benchmarks.remote.tooz_roles import ToozCandidate  # noqa: PLC0415  few stores need it

    return ToozCandidate(address, elected, pause_seconds=float(name.partition(":")[2]))


def _raw(address: StoreAddress, part: str) -> Any:
    return import_module(f"benchmarks.remote.{address.store}.{part}")
