"""Evidence that the faults happened at all."""

from collections import Counter

from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.storm_history import StormRecord


def faults_with_evidence(record: StormRecord) -> Finding:
    """Judge whether every kind of fault that was tried was observed, at least once."""
    tried, bit = counted(record)
    harmless = [kind for kind in tried if not bit[kind]]
    return Finding(
        "F",
        "every kind of fault was seen to happen",
        [],
        f"{bit.total()} of {tried.total()} faults, of {len(tried)} kinds",
        f"never seen: {', '.join(harmless)}" if harmless else "" if tried else "no fault was done",
    )


def counted(record: StormRecord) -> tuple[Counter[str], Counter[str]]:
    """Return how many faults of each kind were done, and how many were observed."""
    faults = [fault for window in record.windows for fault in window.faults]
    return (
        Counter(fault.kind for fault in faults),
        Counter(fault.kind for fault in faults if fault.evidence),
    )
