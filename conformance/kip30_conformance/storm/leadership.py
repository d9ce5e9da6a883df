"""I1, I2 and I5: who led when, and what was written under which epoch."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kip30.driver.records import Version
from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.journal import Row
from kip30_conformance.storm.names import EXPIRY, FENCED_KEY
from kip30_conformance.storm.record import Record, Term

MOST_OBSERVED = 1.0
"""How many seconds a store may declare that its observers are late, as far as I1 goes."""


def one_holder(record: Record) -> Finding:
    """Judge I1 by the terms, each of which certainly lasted from its first to its last moment.

    No clock tells a leader that its session was ended ahead of time. Where the store does not tell
    it either, it learns of that as observers do, and may believe in its term as long.
    """
    terms = record.terms
    return Finding(
        "I1",
        "one holder per epoch, and no two valid at once in different processes",
        [*_shared_epochs(record), *_overlaps(record)],
        f"{len(terms)} terms",
        "" if len(terms) > 1 else "the leader never changed",
    )


def rising_epochs(record: Record) -> Finding:
    """Judge I2 by the terms, and by all that was read of leaders."""
    reads = sorted(_reads(record))
    return Finding(
        "I2",
        "epochs strictly rise in the order of election",
        [*_out_of_order(record.terms), *_falling_reads(reads)],
        f"{len(record.terms)} terms, {len(reads)} reads of the leader",
        "" if len(record.terms) > 1 else "the leader never changed",
    )


def fenced_writes(record: Record) -> Finding:
    """Judge I5 by the acknowledged writes of the fenced key, in the order of their versions."""
    accepted = sorted(_accepted(record))
    refused = sum(
        row.key == FENCED_KEY and row.result == "FencedError" for row in record.operations
    )
    falling = [
        f"epoch {later} accepted after {earlier}: version {version} after {before}"
        for (before, earlier), (version, later) in pairwise(accepted)
        if later < earlier
    ]
    unseen = {"no fenced write was accepted": not accepted, "none was refused": not refused}
    return Finding(
        "I5",
        "the epochs of accepted fenced writes never fall",
        falling,
        f"{len(accepted)} accepted, {refused} refused",
        "; ".join(reason for reason, holds in unseen.items() if holds),
    )


def _shared_epochs(record: Record) -> Iterator[str]:
    """Yield each epoch with several holders, also if it was too short to be found valid."""
    holders = defaultdict[int, set[str]](set)
    for term in record.terms:
        holders[term.epoch].add(term.process)
    for process, row in record.rows("elected"):
        holders[row["epoch"]].add(process)
    for epoch, processes in sorted(holders.items()):
        if len(processes) > 1:
            yield f"epoch {epoch} held by {' and by '.join(sorted(processes))}"


def _overlaps(record: Record) -> Iterator[str]:
    """Yield each two terms of different processes that were valid at once.

    All pairs are compared: a term that is excused must not hide two others behind it.
    """
    lasting: list[Term] = []
    for term in sorted(record.terms, key=lambda term: term.first):
        lasting = [earlier for earlier in lasting if earlier.last > term.first]
        for earlier in lasting:
            if earlier.process != term.process and not _could_not_know(earlier, term, record):
                both = min(term.last, earlier.last) - term.first
                yield f"{_named(earlier)} and {_named(term)} both valid for {both:.3f} s"
        lasting.append(term)


def _could_not_know(term: Term, later: Term, record: Record) -> bool:
    """Say whether a fault deleted the claim of *term* before *later*, and its holder saw it soon.

    Only the claim that was there when the deletion was called is excused, and only where the store
    declares that observers see a change later than at once.
    """
    return any(
        process == term.process
        and term.first < row["called"] <= later.first
        and row["observe_seconds"] > 0
        and term.last <= row["at"] + _allowance(row, term, record)
        for process, row in record.rows("expired")
    )


def _allowance(row: Row, term: Term, record: Record) -> float:
    """Return how many seconds after its deletion *term* may have been found valid.

    What a store declares counts up to a limit, because the accused declares it. A look takes longer
    while another fault is under way.
    """
    declared: float = row["observe_seconds"]
    disturbed = any(
        window.begin <= term.last
        and row["at"] <= window.end
        and any(struck.kind != EXPIRY for struck in window.faults)
        for window in record.windows
    )
    return min(declared, MOST_OBSERVED) + (
        record.timing.operation if disturbed else record.timing.look_up
    )


def _out_of_order(terms: Sequence[Term]) -> Iterator[str]:
    latest: Term | None = None
    for term in sorted(terms):
        if latest and term.last < latest.first:
            yield f"{_named(term)} was over before {_named(latest)} began"
        if latest is None or term.first > latest.first:
            latest = term


def _reads(record: Record) -> Iterator[tuple[float, float, int]]:
    """Yield when each read of a leader was called, when it had returned, and the epoch."""
    for _, row in record.rows("read leader"):
        if row["seen"] is not None:
            yield row["called"], row["at"], row["seen"][1]


def _falling_reads(reads: Sequence[tuple[float, float, int]]) -> Iterator[str]:
    """Yield each read that met a lower epoch than one that had returned before its call."""
    returns = sorted((returned, epoch) for _, returned, epoch in reads)
    over, newest = 0, 0
    for called, _, epoch in reads:
        while returns[over][0] < called:
            newest = max(newest, returns[over][1])
            over += 1
        if epoch < newest:
            yield f"epoch {epoch} read at {called:.3f} although {newest} had been read before"


def _accepted(record: Record) -> Iterator[tuple[Version, int]]:
    for row in record.operations:
        if row.key == FENCED_KEY and row.acknowledged and row.version and row.op == "update":
            yield row.version, int(row.args[-1].split()[0])


def _named(term: Term) -> str:
    return f"epoch {term.epoch} of {term.process} ({term.first:.3f}-{term.last:.3f})"
