"""Waves: each span is run once, whichever waves fail."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from kip30.errors import FencedError, PositionLostError, UnavailableError
from kip30.pipeline.job_errors import IncompleteRunError, JobFailedError
from kip30.pipeline.manifest import DataFile, Digest
from kip30.pipeline.progress import NoProgress, WaveProgress
from kip30.pipeline.run_directory import RunDirectory
from kip30.pipeline.wave_runner import WaveResult, run_waves
from kip30.pipeline.waves import WAVE_SECONDS, Waves, partitions
from kip30.scanning import Span

SPANS = [Span(b"%d" % number, 10) for number in range(40)]


@given(
    sizes=st.lists(st.integers(0, 50), max_size=60),
    slots=st.integers(1, 9),
    fails=st.lists(st.booleans(), max_size=40),
    seed=st.text(max_size=3),
)
@settings(deadline=None)
def test_each_span_is_run_once(sizes: list[int], slots: int, fails: list[bool], seed: str) -> None:
    spans = [Span(b"", rows) for rows in sizes]
    finished = {number for number in range(len(spans)) if number % 7 == 3}
    waves = Waves(spans, finished, seed, slots)
    done: list[int] = []
    while numbers := waves.next():
        if len(numbers) > 1 and fails and fails.pop():
            waves.halve(numbers)
            continue
        done += numbers
        waves.adapt(numbers, 0.5)
    assert sorted(done + sorted(finished)) == list(range(len(spans)))


def test_a_wave_that_fails_is_halved() -> None:
    waves = Waves(SPANS, (), "seed", 8)
    first = waves.next()
    waves.halve(first)
    second, third = waves.next(), waves.next()
    assert len(second) == len(third) == 4
    assert sorted(second + third) == sorted(first)


def test_waves_grow_until_they_take_their_time() -> None:
    spans = [Span(b"", 100) for _ in range(4_000)]
    waves = Waves(spans, (), "seed", 2)
    sizes: list[int] = []
    while numbers := waves.next():
        sizes.append(len(numbers))
        waves.adapt(numbers, len(numbers) * 0.1)  # 0.1 s each
    assert sizes[0] == 2
    assert max(sizes) == WAVE_SECONDS / 0.1
    assert all(after <= 4 * before for before, after in pairwise(sizes))


def test_the_order_is_shuffled_and_the_same_each_time() -> None:
    orders = [Waves(SPANS, (), "seed", 40).next() for _ in range(2)]
    assert orders[0] == orders[1] != sorted(orders[0])
    assert Waves(SPANS, (), "other", 40).next() != orders[0]


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 8))
def test_partitions_share_the_rows(sizes: list[int], slots: int) -> None:
    spans = [Span(b"%d" % number, rows) for number, rows in enumerate(sizes)]
    groups = partitions(spans, slots)
    assert Counter(span for group in groups for span in group) == Counter(spans)
    assert len(groups) == min(slots, len(spans))
    rows = [sum(span.rows for span in group) for group in groups]
    assert max(rows, default=0) - min(rows, default=0) <= max(sizes, default=0)


class Job:
    """Runs waves, and fails those that hold a span of *poison*, the number of times it says."""

    def __init__(self, poison: dict[bytes, list[Exception]] | None = None) -> None:
        self.poison = poison or {}
        self.ran: list[list[bytes]] = []

    def __call__(self, number: int, spans: Sequence[Span]) -> WaveResult:
        tokens = [span.token for span in spans]
        self.ran.append(tokens)
        for token in tokens:
            if self.poison.get(token):
                raise self.poison[token].pop(0)
        files = (DataFile(f"data/wave={number}/a.parquet", 5),)
        return WaveResult(Digest(len(spans), 3, 1), {"moving": 2}, files)


class Noted(NoProgress):
    def __init__(self) -> None:
        self.waves: list[WaveProgress] = []

    @override
    def wave(self, done: WaveProgress) -> None:
        self.waves.append(done)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path / "run", "snapshot", {})
    directory.save_plan(SPANS)
    return directory


def _done(run: RunDirectory) -> list[int]:
    return sorted(span for wave in run.manifest.waves for span in wave.spans)


def test_all_waves_are_entered(run: RunDirectory) -> None:
    progress = Noted()
    run_waves(run, Job(), 4, progress)
    manifest = run.manifest
    assert _done(run) == list(range(len(SPANS)))
    assert [wave.number for wave in manifest.waves] == list(range(len(manifest.waves)))
    assert manifest.digest.rows == len(SPANS)
    assert manifest.total("moving") == 2 * len(manifest.waves)
    last = progress.waves[-1]
    assert (last.spans, last.planned, last.size, last.seconds_left) == (40, 40, 5, 0.0)


def test_a_wave_that_fails_once_is_run_again(run: RunDirectory) -> None:
    run_waves(run, Job({b"7": [JobFailedError("gone")]}), 4, NoProgress())
    (retried,) = (wave for wave in run.manifest.waves if wave.attempts > 1)
    assert retried.attempts == 2
    assert 7 in retried.spans
    assert _done(run) == list(range(len(SPANS)))


def test_a_span_that_fails_for_a_while_is_done_at_last(run: RunDirectory) -> None:
    job = Job({b"7": [UnavailableError("away") for _ in range(3)]})
    run_waves(run, job, 8, NoProgress())
    assert _done(run) == list(range(len(SPANS)))


def test_a_span_that_fails_always_ends_the_run(run: RunDirectory) -> None:
    job = Job({b"7": [UnavailableError(f"away {number}") for number in range(99)]})
    with pytest.raises(IncompleteRunError, match="span 7: away"):
        run_waves(run, job, 8, NoProgress())
    assert 7 not in _done(run)
    assert job.ran[-2:] == [[b"7"], [b"7"]]
    run_waves(run, job := Job(), 8, NoProgress())
    assert _done(run) == list(range(len(SPANS)))
    assert len(_done(run)) == len(set(_done(run)))


@pytest.mark.parametrize("kind", [PositionLostError, FencedError])
def test_what_will_come_again_ends_the_run_at_once(
    run: RunDirectory, kind: type[Exception]
) -> None:
    job = Job({b"7": [kind("for good")]})
    with pytest.raises(IncompleteRunError, match="for good") as caught:
        run_waves(run, job, 40, NoProgress())
    assert isinstance(caught.value.__cause__, kind)
    assert len(job.ran) == 1
    assert run.manifest.waves == []


def test_an_error_of_ours_is_not_hidden(run: RunDirectory) -> None:
    with pytest.raises(ZeroDivisionError):
        run_waves(run, Job({b"7": [ZeroDivisionError()]}), 40, NoProgress())
    assert run.manifest.waves == []
