"""I7: whether listeners received the truth, in order, and all of it in the end."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from kip30.driver.records import Version, parse_version
from kip30.history.operations import Operation
from kip30_conformance.storm.finding import Finding
from kip30_conformance.storm.journal import Row
from kip30_conformance.storm.names import KEY_SET_KEYS, TOLD_KEY, client_of
from kip30_conformance.storm.record import Final, Record

LISTENERS = ("told value", "told keys", "told members", "told leader")
_SHOWN = 20


def listeners_told(record: Record) -> Finding:
    """Judge I7 by what every listener of every process received."""
    wrong = [*_disorder(record), *_phantoms(record), *_behind(record)]
    told = {what: sum(1 for _ in record.rows(what)) for what in LISTENERS}
    silent = [what for what, count in told.items() if count <= len(record.names)]
    unseen = [f"no news: {what}" for what in silent]
    return Finding(
        "I7",
        "listeners: order never back, no phantom, the final state told",
        wrong[:_SHOWN],
        ", ".join(f"{what} {count} times" for what, count in told.items()),
        "; ".join(unseen if record.final else [*unseen, "the final state could not be read"]),
    )


def _behind(record: Record) -> Iterator[str]:
    """Yield which listener of which last process did not receive the final state."""
    if record.final is None:
        return
    for process in record.last_processes():
        yield from lagging(process, record.journals[process], record.final)


def lagging(process: str, rows: Sequence[Row], final: Final) -> Iterator[str]:
    """Yield in words what the listeners of *process* did not receive."""
    last = {row["what"]: _state(row) for row in rows if row["at"] <= final.until}
    for what, truth in _truth(final).items():
        if last.get(what) != truth:
            yield f"{process}: {what} {last.get(what)} last, and the final state is {truth}"


def _truth(final: Final) -> Mapping[str, Any]:
    value = final.values.get(TOLD_KEY)
    return {
        "told value": None if value is None else (value[0], str(value[1])),
        "told keys": sorted(final.keys),
        "told members": sorted(final.members),
        "told leader": None if final.leader is None else list(final.leader),
    }


def _state(row: Row) -> Any:
    if row["what"] == "told value":
        return None if row["version"] is None else (row["value"], row["version"])
    return row.get("leader") if row["what"] == "told leader" else row.get("now")


def _disorder(record: Record) -> Iterator[str]:
    for process, rows in record.journals.items():
        yield from _falling(process, "version", _versions(rows))
        yield from _falling(process, "epoch", _epochs(rows))
        for what in ("told keys", "told members"):
            yield from _jumps(process, [row for row in rows if row["what"] == what])


def _versions(rows: Sequence[Row]) -> list[Version]:
    told = (row["version"] for row in rows if row["what"] == "told value")
    return [parse_version(version) for version in told if version is not None]


def _epochs(rows: Sequence[Row]) -> list[int]:
    told = (row["leader"] for row in rows if row["what"] == "told leader")
    return [leader[1] for leader in told if leader is not None]


def _falling(process: str, what: str, told: Sequence[Any]) -> Iterator[str]:
    for earlier, later in pairwise(told):
        if later <= earlier:
            yield f"{process}: told {what} {later} after {earlier}"


def _jumps(process: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield each difference that does not lead from the state before it to its own."""
    for earlier, later in pairwise(rows):
        before, after = set(earlier["now"]), set(later["now"])
        if set(later["added"]) != after - before or set(later["removed"]) != before - after:
            yield f"{process}: {later} does not follow {earlier}"


def _phantoms(record: Record) -> Iterator[str]:
    yield from _phantom_values(record)
    for _, row in record.rows("told keys"):
        yield from (f"phantom key {key}" for key in row["now"] if key not in KEY_SET_KEYS)
    for _, row in record.rows("told members"):
        yield from (f"phantom member {one}" for one in row["now"] if one not in record.names)
    yield from _phantom_leaders(record)


def _phantom_values(record: Record) -> Iterator[str]:
    writes = {row.args[-1]: row for row in record.operations if row.key == TOLD_KEY and row.args}
    for process, row in record.rows("told value"):
        if row["value"] is None:
            continue
        write = writes.get(row["value"])
        if write is None or write.refused or not _is_version_of(write, row["version"]):
            yield f"{process}: told {row['value']!r} at {row['version']}, written as {write}"


def _is_version_of(write: Operation, version: str) -> bool:
    return write.version is None or str(write.version) == version


def _phantom_leaders(record: Record) -> Iterator[str]:
    holders = {term.epoch: client_of(term.process) for term in record.terms}
    for process, row in record.rows("told leader"):
        if row["leader"] is not None:
            leader, epoch = row["leader"]
            if leader not in record.names or holders.get(epoch, leader) != leader:
                yield f"{process}: told that {leader} leads in epoch {epoch}"
