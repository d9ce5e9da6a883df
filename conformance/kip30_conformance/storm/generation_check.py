"""I13: the generations of the group that divides items, and the assignments of each."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import combinations

from kip30_conformance.storm.falling_reads import falling_reads
from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.storm_history import StormRecord

_SHOWN = 20

Share = frozenset[int]
Shares = Mapping[str, Share]


def one_assignment(record: StormRecord) -> Finding:
    """Judge I13 by the generations that each member took up, and by all reads of the group."""
    reads = [
        (row["called"], row["at"], row["seen"][0])
        for _, row in record.rows("read shares")
        if row["seen"] is not None
    ]
    taken = [row["generation"] for _, row in record.rows("share")]
    wrong = [*_going_back(record), *falling_reads(reads, "generation"), *_contradictions(record)]
    return Finding(
        "I13",
        "generations never go back, and each has one assignment",
        wrong[:_SHOWN],
        f"{len(set(taken))} generations, {len(taken)} shares taken up, {len(reads)} reads",
        "" if len(set(taken)) > 1 and reads else "the group had no two generations",
    )


def _going_back(record: StormRecord) -> Iterator[str]:
    """Yield each generation that a member took up although it had had that or a later one.

    It may take up its newest one again if it has lost the share at its deadline.
    """
    newest: dict[str, int] = {}
    lost = set[str]()
    for row in (row for rows in record.journals.values() for row in rows):
        if row["what"] == "share lost":
            lost.add(row["member"])
        elif row["what"] == "share":
            member, generation = row["member"], row["generation"]
            before = newest.get(member, -1)
            if generation < before or (generation == before and member not in lost):
                yield f"{member} took generation {generation} up after {before}"
            newest[member] = max(generation, before)
            lost.discard(member)


def _contradictions(record: StormRecord) -> Iterator[str]:
    for generation, known in sorted(_known(record).items()):
        for member, shares in sorted(known.items()):
            if len(shares) > 1:
                yield f"generation {generation} has several shares for {member}: {_sets(shares)}"
        together = {member: frozenset[int]().union(*shares) for member, shares in known.items()}
        yield from _shared(generation, together)
    yield from _differing_members(record)


def _shared(generation: int, shares: Shares) -> Iterator[str]:
    for (one, mine), (other, others) in combinations(sorted(shares.items()), 2):
        if both := mine & others:
            yield f"generation {generation} gives {sorted(both)} to {one} and to {other}"


def _known(record: StormRecord) -> Mapping[int, Mapping[str, set[Share]]]:
    """Return by generation and member all shares that were taken up or read."""
    known: defaultdict[int, defaultdict[str, set[Share]]]
    known = defaultdict(lambda: defaultdict(set))
    for _, row in record.rows("share"):
        known[row["generation"]][row["member"]].add(frozenset(row["items"]))
    for _, row in record.rows("read shares"):
        if row["seen"] is not None:
            generation, shares = row["seen"]
            for member, items in shares.items():
                known[generation][member].add(frozenset(items))
    return known


def _differing_members(record: StormRecord) -> Iterator[str]:
    """Yield each generation whose members differ between two reads, or from those with a share."""
    members: dict[int, frozenset[str]] = {}
    for _, row in record.rows("read shares"):
        if row["seen"] is not None:
            generation, shares = row["seen"]
            if members.setdefault(generation, frozenset(shares)) != frozenset(shares):
                yield f"generation {generation} was read with other members than before"
    for _, row in record.rows("share"):
        generation, member = row["generation"], row["member"]
        if member not in members.get(generation, {member}):
            yield f"{member} took a share of generation {generation} up, which has none for it"


def _sets(shares: set[Share]) -> str:
    return " and ".join(str(sorted(share)) for share in sorted(shares, key=sorted))
