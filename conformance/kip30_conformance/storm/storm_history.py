"""The complete record of a storm, which the judges read."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from kip30.driver.clock import SystemClock
from kip30.driver.records import Version
from kip30.history.operations import Operation
from kip30.history.recorder import read_rows
from kip30_conformance.storm.believed_terms import read_terms
from kip30_conformance.storm.names import client_of
from kip30_conformance.storm.process_journal import Row, read_journals
from kip30_conformance.storm.sharing import read_work
from kip30_conformance.storm.timing import Timing


class Term(NamedTuple):
    """A leadership, and between which moments it certainly was valid to its holder."""

    epoch: int
    first: float
    last: float
    process: str


class WorkInterval(NamedTuple):
    """Work on an item, of which each moment from *first* to *last* was one of a valid share.

    The moments are of the boot clock, in seconds.
    """

    item: int
    first: float
    last: float
    member: str


class InjectedFault(NamedTuple):
    """A fault that was done; without *evidence* it may not have happened."""

    kind: str
    target: str
    seconds: float
    evidence: str


class Window(NamedTuple):
    """A time with faults. All must work between *well_from* and *until*, when the next begins.

    All are moments of CLOCK_MONOTONIC, in seconds.
    """

    begin: float
    end: float
    well_from: float
    until: float
    faults: tuple[InjectedFault, ...] = ()


class Final(NamedTuple):
    """The content of the store after the last fault, when no client writes any longer.

    *directed_leader* leads the service whose candidates receive directives. Every listener must
    receive the state until the moment *until*; later events are of the end.
    """

    values: Mapping[str, tuple[str, Version] | None]
    members: Sequence[str]
    leader: tuple[str, int] | None
    keys: Sequence[str]
    directed_leader: str | None = None
    until: float = inf


@dataclass(frozen=True, kw_only=True)
class StormRecord:
    """A storm.

    Attributes:
        names: The clients, as members and candidates.
        timing: The durations of the storm.
        operations: All operations on the storage.
        journals: The journal of each process.
        terms: All leaderships, by epoch.
        directed_terms: Those of the service whose candidates receive directives.
        work: All work on the items that the members of the clients divide.
        boot_ahead: By how many seconds the boot clock is ahead of CLOCK_MONOTONIC.
        windows: The faults, in their order; the first window has none.
        final: The final content; None if that could not be read.
        deaths: Processes that ended by themselves, or did not end on request.
    """

    names: Sequence[str] = ()
    timing: Timing = field(default_factory=Timing)
    operations: Sequence[Operation] = ()
    journals: Mapping[str, Sequence[Row]] = field(default_factory=dict[str, Sequence[Row]])
    terms: Sequence[Term] = ()
    directed_terms: Sequence[Term] = ()
    work: Sequence[WorkInterval] = ()
    boot_ahead: float = 0.0
    windows: Sequence[Window] = ()
    final: Final | None = None
    deaths: Sequence[str] = ()

    def rows(self, what: str) -> Iterator[tuple[str, Row]]:
        """Yield the rows of *what* in all journals, each with its process."""
        for process, rows in self.journals.items():
            yield from ((process, row) for row in rows if row["what"] == what)

    def whole_calms(self) -> list[Window]:
        """Return the windows whose calm lasted as long as required: a shorter one shows nothing."""
        return [one for one in self.windows if one.until >= one.well_from + self.timing.look]

    def last_processes(self) -> list[str]:
        """Return the last process of every client."""
        last = {client_of(process): process for process in sorted(self.journals, key=_age)}
        return list(last.values())


def load(folder: Path, **known: Any) -> StormRecord:
    """Return the record that the processes left in *folder*, with the facts in *known*."""
    return StormRecord(
        operations=read_rows(folder / "history"),
        journals=read_journals(folder / "journals"),
        terms=[Term(*words) for words in read_terms(folder / "terms")],
        directed_terms=[Term(*words) for words in read_terms(folder / "directed-terms")],
        work=[WorkInterval(*words) for words in read_work(folder / "work")],
        boot_ahead=SystemClock().now() - time.monotonic(),
        **known,
    )


def _age(process: str) -> int:
    return int(process.partition(".")[2])
