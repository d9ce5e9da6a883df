"""The two sides of a comparison, by store; only the client library of one store is needed."""

from importlib import import_module
from typing import Any

from benchmarks.remote.candidate import Candidate, Elected
from benchmarks.remote.library import LibraryCandidate, LibrarySide, LibraryWire
from benchmarks.remote.place import Place
from benchmarks.remote.side import Side
from benchmarks.remote.wire import Wire


def side(name: str, place: Place) -> Side:
    opened: Side = LibrarySide(place) if name == "library" else _raw(place, "side").RawSide(place)
    return opened


def wire(name: str, place: Place) -> Wire:
    opened: Wire = LibraryWire(place) if name == "library" else _raw(place, "wire").RawWire(place)
    return opened


def candidate(name: str, place: Place, elected: Elected) -> Candidate:
    if name == "library":
        return LibraryCandidate(place, elected)
    if name == "raw":
        raw: Candidate = _raw(place, "candidate").RawCandidate(place, elected)
        return raw
    from benchmarks.remote.tooz_roles import ToozCandidate  # noqa: PLC0415  few stores need it

    return ToozCandidate(place, elected, pause_seconds=float(name.partition(":")[2]))


def _raw(place: Place, part: str) -> Any:
    return import_module(f"benchmarks.remote.{place.store}.{part}")
