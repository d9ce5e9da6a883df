"""I1, I2 and I5: the terms of leaders, and the epochs that writes carried."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from kip30.driver.records import Version
from kip30_conformance.storm.falling_reads import falling_reads
from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.names import FENCED_KEY
from kip30_conformance.storm.storm_history import StormRecord, Term
from kip30_conformance.storm.valid_periods import ValidPeriod, overlaps


def one_holder(record: StormRecord) -> Finding:
    """Judge I1 by the terms, each of which certainly lasted from its first to its last moment.

    No clock shows a leader that its session was ended ahead of time. It is notified as observers
    are, also by a store that notifies at once: the next leader may be notified before.
    """
    terms = record.terms
    return Finding(
        "I1",
        "one holder per epoch, and no two valid at once in different processes",
        [*_shared_epochs(record), *overlaps(record, map(period, terms))],
        f"{len(terms)} terms",
        "" if len(terms) > 1 else "the leader never changed",
    )


def rising_epochs(record: StormRecord) -> Finding:
    """Judge I2 by the terms, and by all reads of leaders."""
    reads = sorted(_reads(record))
    return Finding(
        "I2",
        "epochs strictly rise in the order of election",
        [*_out_of_order(record.terms), *falling_reads(reads, "epoch")],
        f"{len(record.terms)} terms, {len(reads)} reads of the leader",
        "" if len(record.terms) > 1 else "the leader never changed",
    )


def fenced_writes(record: StormRecord) -> Finding:
    """Judge I5 by the writes of the fenced key that were acknowledged or read, by their versions.

    One without an answer was accepted, too, if a read shows it.
    """
    accepted = sorted(set(_accepted(record)))
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


def period(term: Term) -> ValidPeriod:
    """Return the period of *term*, which must not overlap that of another one."""
    name = f"epoch {term.epoch} of {term.process}"
    return ValidPeriod(term.first, term.last, term.process, term.process, name)


def _shared_epochs(record: StormRecord) -> Iterator[str]:
    """Yield each epoch with several holders, also if it was too short to be found valid."""
    holders = defaultdict[int, set[str]](set)
    for term in record.terms:
        holders[term.epoch].add(term.process)
    for process, row in record.rows("elected"):
        holders[row["epoch"]].add(process)
    for epoch, processes in sorted(holders.items()):
        if len(processes) > 1:
            yield f"epoch {epoch} held by {' and by '.join(sorted(processes))}"


def _out_of_order(terms: Sequence[Term]) -> Iterator[str]:
    latest: Term | None = None
    for term in sorted(terms):
        if latest and term.last < latest.first:
            yield f"{_named(term)} was over before {_named(latest)} began"
        if latest is None or term.first > latest.first:
            latest = term


def _reads(record: StormRecord) -> Iterator[tuple[float, float, int]]:
    """Yield when each read of a leader was called, when it had returned, and the epoch."""
    for _, row in record.rows("read leader"):
        if row["seen"] is not None:
            yield row["called"], row["at"], row["seen"][1]


def _accepted(record: StormRecord) -> Iterator[tuple[Version, int]]:
    for row in record.operations:
        if row.key == FENCED_KEY and row.acknowledged and row.version is not None:
            value: str = row.args[-1] if row.args else row.result
            if epoch := int(value.split(maxsplit=1)[0]):  # the first value has none
                yield row.version, epoch


def _named(term: Term) -> str:
    return f"epoch {term.epoch} of {term.process} ({term.first:.3f}-{term.last:.3f})"
