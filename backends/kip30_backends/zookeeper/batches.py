"""Writes that may be sent as one transaction."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from kip30.driver.records import Condition, Fence, Write

_MOST = 100
_MOST_BYTES = 256 * 1024


def batches(writes: Sequence[Write]) -> Iterator[list[Write]]:
    """Yield *writes* in their order: creations by the same fence together, all others alone."""
    for alike, group in groupby(writes, _kind):
        members = list(group)
        yield from _packed(members) if alike is not None else ([write] for write in members)


def _kind(write: Write) -> tuple[Fence | None] | None:
    creates = write.condition is Condition.ABSENT and write.data is not None
    return (write.fence,) if creates else None


def _packed(writes: Sequence[Write]) -> Iterator[list[Write]]:
    batch: list[Write] = []
    size = 0
    for write in writes:
        size += len(write.data or b"")
        if batch and (len(batch) == _MOST or size > _MOST_BYTES):
            yield batch
            batch, size = [], len(write.data or b"")
        batch.append(write)
    if batch:
        yield batch
