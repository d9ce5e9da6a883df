"""`Applier.create` against `write_many` alone, and a rerun of it, on one thread.

Both sides write equal values, in batches of the same size, to fresh namespaces of one store, in
alternating order. Both begin with keys as text. A ratio is taken within a round; the median of the
rounds counts.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple
from uuid import uuid4

from benchmarks.timing import Spent, both_spent, spent
from kip30.config import load
from kip30.driver import Backend
from kip30.driver.records import Condition, Write
from kip30.names import parse_key
from kip30.pipeline.write.applier import MOST_IN_FLIGHT, Applier
from kip30.pipeline.write.outcomes import NewRecord, WriteOutcome
from kip30.runtime.resolution import resolve

ROUNDS = 5
_SECONDS = 30
_DATA = b"x" * 100


class Ratios(NamedTuple):
    """Speed of the applier, as a multiple of the speed that it is compared with.

    Attributes:
        against_write_many: Of `write_many` of the same records.
        again: A second `create` of the same records, of the first one.
    """

    against_write_many: Spent
    again: Spent


def measure(config: Path, keys: int) -> Ratios:
    """Measure the store that *config* means, with *keys* keys in each round."""
    backend = resolve(load(config)).open()
    try:
        rounds = [_round(backend, turn, keys) for turn in range(ROUNDS)]
    finally:
        backend.close()
    return Ratios(_middle([one[0] for one in rounds]), _middle([one[1] for one in rounds]))


def _round(backend: Backend, turn: int, keys: int) -> tuple[Spent, Spent]:
    applied = [NewRecord(f"applied-{turn}/k{number:08}", _DATA, "1") for number in range(keys)]
    alone = [f"alone-{turn}/k{number:08}" for number in range(keys)]
    applier = Applier(backend, f"run-{turn}", seconds=_SECONDS)
    create, bare = both_spent(
        lambda: _create(applier, applied), lambda: _write_many(backend, alone), turn
    )
    repeated = Applier(backend, f"run-{turn}", seconds=_SECONDS)
    again = spent(lambda: _create(repeated, applied))
    return _ratio(bare, create), _ratio(create, again)


def _create(applier: Applier, records: Sequence[NewRecord]) -> None:
    for begin in range(0, len(records), MOST_IN_FLIGHT):
        applied = applier.create(records[begin : begin + MOST_IN_FLIGHT])
        assert {one.outcome for one in applied} == {WriteOutcome.WRITTEN}


def _write_many(backend: Backend, keys: Sequence[str]) -> None:
    for begin in range(0, len(keys), MOST_IN_FLIGHT):
        texts = keys[begin : begin + MOST_IN_FLIGHT]
        writes = [Write(parse_key(key), uuid4().hex, _DATA, Condition.ABSENT) for key in texts]
        for future in backend.storage.write_many(writes):
            future.result(_SECONDS)


def _ratio(compared_with: Spent, measured: Spent) -> Spent:
    return Spent(compared_with.wall / measured.wall, compared_with.cpu / measured.cpu)


def _middle(found: Sequence[Spent]) -> Spent:
    return Spent(median(one.wall for one in found), median(one.cpu for one in found))
