"""I15 to I17: pauses, step-downs and hand-overs, and the terms of the service that has them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any, NamedTuple

from kip30.operations import HOLD_SECONDS
from kip30_conformance.storm.falling_reads import falling_reads
from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.leadership_check import period
from kip30_conformance.storm.names import client_of
from kip30_conformance.storm.process_journal import Row
from kip30_conformance.storm.storm_history import StormRecord, Term
from kip30_conformance.storm.valid_periods import overlaps

_SHOWN = 20
_LATE_SECONDS = 15.0
"""Within which a request without an answer may still have an effect: faults hold back no longer."""
_DEFINITE = frozenset({"DirectiveRefusedError", "DirectiveNotObeyedError", "UnavailableError"})
_PAUSING = frozenset({"pause", "resume"})


class Directive(NamedTuple):
    """A directive of a client, with the moments of CLOCK_MONOTONIC at which it was sent.

    Attributes:
        action: ``pause``, ``resume`` or ``step-down``.
        called: Before it was sent.
        returned: When it had returned; infinite if its process was killed.
        settled: Until when it may have been carried out.
        row: What it was, and what it has shown; see `SendDirectives`.
    """

    action: str
    called: float
    returned: float
    settled: float
    row: Row

    def is_done(self) -> bool:
        """Return whether it was acknowledged."""
        return "record" in self.row


def one_directed_holder(record: StormRecord) -> Finding:
    """Judge I15 as `one_holder` judges I1, by the terms of the service that has directives."""
    terms = record.directed_terms
    return Finding(
        "I15",
        "no two leaders of a service with directives are valid at once",
        list(overlaps(record, map(period, terms)))[:_SHOWN],
        f"{len(terms)} terms",
        "" if len(terms) > 1 else "the leader never changed",
    )


def pauses_hold(record: StormRecord) -> Finding:
    """Judge I16 by the pauses that certainly stood, and the terms that were granted under them.

    A pause certainly stands from its acknowledgement until it ends by itself, or another client
    sends a pause or a resumption. After the acknowledgement its client reads who leads. A term of a
    later epoch was granted under the pause, and so is that of the successor of a hand-over.
    """
    directives = list(_directives(record))
    standing = list(_standing(directives))
    broken = [
        f"{term.process} led epoch {term.epoch} from {term.first:.3f}, under the pause of"
        f" {begin:.3f} to {end:.3f}, after epoch {epoch} had been read"
        for begin, end, epoch in standing
        for term in record.directed_terms
        if begin < term.first < end
        and (epoch is None or term.epoch > epoch)
        and not any(_allows(one, term, record) for one in directives)
    ]
    seconds = sum(end - begin for begin, end, _ in standing)
    return Finding(
        "I16",
        "no candidate is elected while its service is paused, except for a named successor",
        broken[:_SHOWN],
        f"{len(standing)} pauses, which stood for {seconds:.0f} s",
        "" if standing else "no pause was certain to stand",
    )


def step_downs_are_obeyed(record: StormRecord) -> Finding:
    """Judge I17 by the step-downs that were acknowledged, and the numbers of all records."""
    directives = list(_directives(record))
    done = [one for one in directives if one.action == "step-down" and one.is_done()]
    numbers = [(one.called, one.returned, one.row["record"]) for one in directives if one.is_done()]
    disobeyed = [complaint for one in done for complaint in _disobeyed(one, record)]
    disobeyed += _overwritten(directives)
    final = record.final
    if directives and final is not None and final.directed_leader is None:
        disobeyed.append("no candidate leads at the end, although all directives are withdrawn")
    return Finding(
        "I17",
        "a step-down that was acknowledged has ended its term, and no directive is overwritten",
        [*disobeyed, *falling_reads(numbers, "record")][:_SHOWN],
        f"{len(directives)} directives; {len(done)} step-downs were acknowledged",
        "" if done else "no step-down was acknowledged",
    )


def _directives(record: StormRecord) -> Iterator[Directive]:
    """Yield all, in the order of the calls of each process."""
    for rows in record.journals.values():
        ended = {row["number"]: row for row in rows if row["what"] == "directed"}
        for row in rows:
            if row["what"] == "directs":
                yield _directive({**row, **ended.get(row["number"], {})}, rows[-1]["at"])


def _directive(row: Row, last: float) -> Directive:
    """Return the directive of *row*, whose process wrote its last row at the moment *last*."""
    returned = row.get("returned", inf)
    is_settled = "record" in row or row.get("error") in _DEFINITE
    settled = returned if is_settled else min(returned, last) + _LATE_SECONDS
    return Directive(row["action"], row["called"], returned, settled, row)


def _standing(directives: Sequence[Directive]) -> Iterator[tuple[float, float, int | None]]:
    """Yield of each pause that was certain to stand from when until when, and the epoch then."""
    pausing = [one for one in directives if one.action in _PAUSING]
    for one in pausing:
        read: dict[str, Any] = one.row.get("read", {})
        if one.action != "pause" or not read:
            continue
        others = [other for other in pausing if other is not one and other.settled >= one.called]
        end = min((other.called for other in others), default=inf)
        end = min(end, one.called + one.row["seconds"])
        if read["returned"] < end:
            yield read["returned"], end, read["epoch"]


def _allows(directive: Directive, term: Term, record: StormRecord) -> bool:
    """Return whether *directive* is a hand-over under which *term* may have begun."""
    row = directive.row
    if row.get("successor") != client_of(term.process) or term.first < directive.called:
        return False
    if row.get("error") == "DirectiveRefusedError":
        return False
    if directive.is_done():
        led: int | None = row["led_epoch"]
        return term.epoch == led
    return term.first <= directive.settled + record.timing.session + HOLD_SECONDS


def _overwritten(directives: Sequence[Directive]) -> Iterator[str]:
    """Yield each record that two pauses have written: the first one is lost. A pause always writes.

    A resumption and a step-down may find nothing to change, and return the record of another one.
    """
    paused = [one for one in directives if one.action == "pause" and one.is_done()]
    written = Counter(one.row["record"] for one in paused)
    for number, times in sorted(written.items()):
        if times > 1:
            yield f"record {number} was written by {times} pauses"


def _disobeyed(directive: Directive, record: StormRecord) -> Iterator[str]:
    row, named = directive.row, directive.row.get("successor")
    for term in record.directed_terms:
        if term.epoch == row["epoch"] and term.last > directive.returned:
            yield (
                f"{term.process} led epoch {term.epoch} until {term.last:.3f}, and its step-down"
                f" had been acknowledged at {directive.returned:.3f}"
            )
        if named and term.epoch == row["led_epoch"] and client_of(term.process) != named:
            yield f"{term.process} led epoch {term.epoch}, which was handed over to {named}"
    if named and row["leader"] != named:
        yield f"{row['leader']} led after an acknowledged hand-over to {named}"
