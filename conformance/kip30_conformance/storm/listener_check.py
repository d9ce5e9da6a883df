"""I7: the states that listeners received: true, in order, and all of them in the end."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kip30.driver.records import Version, parse_version
from kip30.history.operations import Operation
from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.names import KEY_SET_KEYS, OBSERVED_KEY, client_of
from kip30_conformance.storm.process_journal import Row
from kip30_conformance.storm.storm_history import Final, StormRecord

LISTENERS = ("value event", "keys event", "members event", "leader event")
_SHOWN = 20


def events_delivered(record: StormRecord) -> Finding:
    """Judge I7 by the events of every listener of every process."""
    wrong = [*_disorder(record), *_phantoms(record), *_behind(record)]
    counts = {what: sum(1 for _ in record.rows(what)) for what in LISTENERS}
    silent = [what for what, count in counts.items() if count <= len(record.names)]
    unseen = [f"no news: {what}" for what in silent]
    return Finding(
        "I7",
        "listeners: order never back, no phantom, the final state delivered",
        wrong[:_SHOWN],
        ", ".join(f"{what} {count} times" for what, count in counts.items()),
        "; ".join(unseen if record.final else [*unseen, "the final state could not be read"]),
    )


def _behind(record: StormRecord) -> Iterator[str]:
    """Yield the listeners of each last process that did not receive the final state."""
    if record.final is None:
        return
    for process in record.last_processes():
        yield from lagging(process, record.journals[process], record.final)


def lagging(process: str, rows: Sequence[Row], final: Final) -> Iterator[str]:
    """Yield in words the states that the listeners of *process* did not receive."""
    last = {row["what"]: _state(row) for row in rows if row["at"] <= final.until}
    for what, truth in _truth(final).items():
        if last.get(what) != truth:
            yield f"{process}: {what} {last.get(what)} last, and the final state is {truth}"


def _truth(final: Final) -> Mapping[str, Any]:
    value = final.values.get(OBSERVED_KEY)
    return {
        "value event": None if value is None else (value[0], str(value[1])),
        "keys event": sorted(final.keys),
        "members event": sorted(final.members),
        "leader event": None if final.leader is None else list(final.leader),
    }


def _state(row: Row) -> Any:
    if row["what"] == "value event":
        return None if row["version"] is None else (row["value"], row["version"])
    return row.get("leader") if row["what"] == "leader event" else row.get("now")


def _disorder(record: StormRecord) -> Iterator[str]:
    for process, rows in record.journals.items():
        yield from _falling(process, "version", _versions(rows))
        yield from _falling(process, "epoch", _epochs(rows))
        for what in ("keys event", "members event"):
            yield from _jumps(process, [row for row in rows if row["what"] == what])


def _versions(rows: Sequence[Row]) -> list[Version]:
    versions = (row["version"] for row in rows if row["what"] == "value event")
    return [parse_version(version) for version in versions if version is not None]


def _epochs(rows: Sequence[Row]) -> list[int]:
    leaders = (row["leader"] for row in rows if row["what"] == "leader event")
    return [leader[1] for leader in leaders if leader is not None]


def _falling(process: str, what: str, values: Sequence[Any]) -> Iterator[str]:
    for earlier, later in pairwise(values):
        if later <= earlier:
            yield f"{process}: delivered {what} {later} after {earlier}"


def _jumps(process: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield each difference that does not lead from the state before it to its own."""
    for earlier, later in pairwise(rows):
        before, after = set(earlier["now"]), set(later["now"])
        if set(later["added"]) != after - before or set(later["removed"]) != before - after:
            yield f"{process}: {later} does not follow {earlier}"


def _phantoms(record: StormRecord) -> Iterator[str]:
    yield from _phantom_values(record)
    for _, row in record.rows("keys event"):
        yield from (f"phantom key {key}" for key in row["now"] if key not in KEY_SET_KEYS)
    for _, row in record.rows("members event"):
        yield from (f"phantom member {one}" for one in row["now"] if one not in record.names)
    yield from _phantom_leaders(record)


def _phantom_values(record: StormRecord) -> Iterator[str]:
    writes = {
        row.args[-1]: row for row in record.operations if row.key == OBSERVED_KEY and row.args
    }
    for process, row in record.rows("value event"):
        if row["value"] is None:
            continue
        write = writes.get(row["value"])
        if write is None or write.refused or not _is_version_of(write, row["version"]):
            yield f"{process}: delivered {row['value']!r} at {row['version']}, written as {write}"


def _is_version_of(write: Operation, version: str) -> bool:
    return write.version is None or str(write.version) == version


def _phantom_leaders(record: StormRecord) -> Iterator[str]:
    holders = {term.epoch: client_of(term.process) for term in record.terms}
    for process, row in record.rows("leader event"):
        if row["leader"] is not None:
            leader, epoch = row["leader"]
            if leader not in record.names or holders.get(epoch, leader) != leader:
                yield f"{process}: notified that {leader} leads in epoch {epoch}"
