"""All that is known of a storm when it is over: what the judges judge."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from kip30.driver.records import Version
from kip30.history.operations import Operation
from kip30.history.recorder import read_rows
from kip30_conformance.storm.journal import Row, read_journals
from kip30_conformance.storm.names import client_of
from kip30_conformance.storm.timing import Timing
from kip30_conformance.storm.validity import read_terms


class Term(NamedTuple):
    """A leadership, and between which moments it certainly was valid to its holder."""

    epoch: int
    first: float
    last: float
    process: str


class Struck(NamedTuple):
    """A fault that was done; without *evidence* it may not have happened."""

    kind: str
    target: str
    seconds: float
    evidence: str


class Window(NamedTuple):
    """A time with faults. All must be well between *well_from* and *until*, when the next begins.

    All are moments of CLOCK_MONOTONIC, in seconds.
    """

    begin: float
    end: float
    well_from: float
    until: float
    faults: tuple[Struck, ...] = ()


class Final(NamedTuple):
    """What the store holds after the last fault, when no client writes any more.

    Until the moment *until* every listener has to receive it; what comes later is the end.
    """

    values: Mapping[str, tuple[str, Version] | None]
    members: Sequence[str]
    leader: tuple[str, int] | None
    keys: Sequence[str]
    until: float = inf


@dataclass(frozen=True, kw_only=True)
class Record:
    """A storm.

    Attributes:
        names: The clients, as members and candidates.
        timing: How long what may last.
        operations: All that was done to the storage.
        journals: What each process has taken down.
        terms: All leaderships, by epoch.
        windows: The faults, in their order; the first window has none.
        final: How it ended; None if that could not be read.
        deaths: Processes that ended by themselves, or did not end on request.
    """

    names: Sequence[str] = ()
    timing: Timing = field(default_factory=Timing)
    operations: Sequence[Operation] = ()
    journals: Mapping[str, Sequence[Row]] = field(default_factory=dict[str, Sequence[Row]])
    terms: Sequence[Term] = ()
    windows: Sequence[Window] = ()
    final: Final | None = None
    deaths: Sequence[str] = ()

    def rows(self, what: str) -> Iterator[tuple[str, Row]]:
        """Yield the rows of all journals that tell of *what*, each with its process."""
        for process, rows in self.journals.items():
            yield from ((process, row) for row in rows if row["what"] == what)

    def last_processes(self) -> list[str]:
        """Return the last process of every client."""
        last = {client_of(process): process for process in sorted(self.journals, key=_age)}
        return list(last.values())


def load(folder: Path, **known: Any) -> Record:
    """Return the record that the processes left in *folder*, with what else is *known*."""
    return Record(
        operations=read_rows(folder / "history"),
        journals=read_journals(folder / "journals"),
        terms=[Term(*words) for words in read_terms(folder / "terms")],
        **known,
    )


def _age(process: str) -> int:
    return int(process.partition(".")[2])
