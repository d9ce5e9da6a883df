"""Running waves that fail in many ways."""

import errno
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from typing_extensions import override

from kip30.driver.scanning import Span
from kip30.errors import (
    AuthenticationError,
    ConfigError,
    Kip30Error,
    NotElectedError,
    PositionLostError,
    StoreError,
    UnavailableError,
    UnsupportedError,
)
from kip30.pipeline.run.directory import RunDirectory, read_manifest
from kip30.pipeline.run.job_errors import IncompleteRunError, JobFailedError
from kip30.pipeline.run.manifest import Digest, Wave
from kip30.pipeline.run.progress import NoProgress, WaveProgress
from kip30.pipeline.run.wave_runner import WaveResult, run_waves

SPANS = [Span(b"%d" % number, 10) for number in range(40)]
SLOTS = 4


class Job:
    """A job that writes which spans it read, and fails where a test says."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self.calls: list[tuple[int, list[int]]] = []
        self.fail: Callable[[list[int]], BaseException | None] = lambda _: None

    def __call__(self, number: int, spans: Sequence[Span]) -> WaveResult:
        numbers = [int(span.token) for span in spans]
        self.calls.append((number, numbers))
        folder = self._run.wave_folder("data", number)
        folder.mkdir()
        (folder / "part.parquet").write_text(" ".join(map(str, numbers)))
        if error := self.fail(numbers):
            raise error
        files = self._run.files_in(folder)
        return WaveResult(Digest(len(numbers), sum(numbers), 0), {"seen": len(numbers)}, files)


class Told(NoProgress):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.waves: list[WaveProgress] = []

    @override
    def wave(self, done: WaveProgress) -> None:
        self.waves.append(done)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory(tmp_path / "run", "job", {}) as run:
        run.save_plan(SPANS)
        yield run


@pytest.fixture
def job(run: RunDirectory) -> Job:
    return Job(run)


def written(run: RunDirectory) -> Counter[int]:
    """Return how many times each span is in the files that the manifest on the disk lists."""
    files = [file for wave in read_manifest(run.path).waves for file in wave.files]
    return Counter(
        int(word) for file in files for word in (run.path / file.name).read_text().split()
    )


def once(*numbers: int) -> dict[int, int]:
    return dict.fromkeys(numbers or range(len(SPANS)), 1)


def first_time(error: BaseException) -> Callable[[list[int]], BaseException | None]:
    """Fail with *error* in each wave's first attempt."""
    failed: set[tuple[int, ...]] = set()

    def fail(numbers: list[int]) -> BaseException | None:
        if tuple(numbers) in failed:
            return None
        failed.add(tuple(numbers))
        return error

    return fail


def test_every_span_once(run: RunDirectory, job: Job) -> None:
    told = Told()
    run_waves(run, job, SLOTS, told)
    assert written(run) == once()
    waves = run.manifest.waves
    assert [wave.number for wave in waves] == list(range(len(waves)))
    assert {wave.attempts for wave in waves} == {1}
    assert run.manifest.digest == Digest(40, sum(range(40)), 0)
    assert run.manifest.total("seen") == 40
    assert [(one.wave, one.rows) for one in told.waves] == [
        (wave.number, wave.digest.rows) for wave in waves
    ]
    last = told.waves[-1]
    assert (last.spans, last.planned, last.seconds_left) == (40, 40, 0)
    assert all(one.size > 0 for one in told.waves)


def test_the_manifest_lists_a_wave_when_it_is_done(run: RunDirectory, job: Job) -> None:
    """Not before, because a driver may end at any time."""
    before: list[int] = []

    def count(_: list[int]) -> None:
        before.append(len(read_manifest(run.path).waves))

    job.fail = count
    run_waves(run, job, SLOTS, NoProgress())
    assert before == list(range(len(job.calls)))


def test_files_are_on_the_disk_before_the_manifest(
    run: RunDirectory, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    fsync = os.fsync

    def note(descriptor: int) -> None:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if path.endswith("manifest.json.new"):
            for wave in run.manifest.waves:
                for file in wave.files:
                    assert {str(run.path / file.name), str((run.path / file.name).parent)} <= synced
        synced.add(path)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    run_waves(run, job, SLOTS, NoProgress())
    assert any(path.endswith("manifest.json.new") for path in synced)


@pytest.mark.parametrize("error", [UnavailableError("x"), StoreError("x"), JobFailedError("x")])
def test_a_wave_is_tried_twice(run: RunDirectory, job: Job, error: Exception) -> None:
    job.fail = first_time(error)
    run_waves(run, job, SLOTS, NoProgress())
    assert written(run) == once()
    assert {wave.attempts for wave in run.manifest.waves} == {2}
    assert len(job.calls) == 2 * len(run.manifest.waves)
    assert job.calls[0] == job.calls[1]


def test_a_wave_that_is_too_large_is_halved(run: RunDirectory, job: Job) -> None:
    job.fail = lambda numbers: JobFailedError("memory") if len(numbers) > 2 else None
    run_waves(run, job, SLOTS, NoProgress())
    assert written(run) == once()
    assert {len(wave.spans) for wave in run.manifest.waves} == {2}


@pytest.mark.parametrize("error", [UnavailableError("gone"), JobFailedError("gone")])
def test_a_span_that_fails_is_named(run: RunDirectory, job: Job, error: Exception) -> None:
    job.fail = lambda numbers: error if 17 in numbers else None
    with pytest.raises(IncompleteRunError) as caught:
        run_waves(run, job, SLOTS, NoProgress())
    assert str(caught.value) == "span 17: gone"
    assert caught.value.__cause__ is error
    assert [numbers for _, numbers in job.calls[-2:]] == [[17], [17]]
    found = written(run)
    assert 17 not in found
    assert set(found.values()) <= {1}
    assert run.manifest == read_manifest(run.path)


@pytest.mark.parametrize(
    "kind", [PositionLostError, AuthenticationError, ConfigError, NotElectedError, UnsupportedError]
)
def test_an_error_that_comes_again_ends_at_once(
    run: RunDirectory, job: Job, kind: type[Kip30Error]
) -> None:
    error = kind("why")
    job.fail = lambda _: error
    with pytest.raises(IncompleteRunError) as caught:
        run_waves(run, job, SLOTS, NoProgress())
    assert str(caught.value) == "why"
    assert caught.value.__cause__ is error
    assert len(job.calls) == 1
    assert read_manifest(run.path).waves == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()])
def test_other_errors_are_the_programs(run: RunDirectory, job: Job, error: BaseException) -> None:
    job.fail = lambda _: error if len(job.calls) == 2 else None
    with pytest.raises(type(error)):
        run_waves(run, job, SLOTS, NoProgress())
    assert len(read_manifest(run.path).waves) == 1
    job.fail = lambda _: None
    run_waves(run, job, SLOTS, NoProgress())
    assert written(run) == once()


def test_a_folder_that_cannot_be_written(run: RunDirectory, job: Job) -> None:
    error = OSError(errno.ENOSPC, "No space left on device")
    job.fail = lambda _: error
    with pytest.raises(IncompleteRunError, match=r"cannot be written: .*No space left"):
        run_waves(run, job, SLOTS, NoProgress())
    assert len(job.calls) == 1


def test_a_manifest_that_cannot_be_written(
    run: RunDirectory, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved = run.save, []

    def fail() -> None:
        saved.append(1)
        if len(saved) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        save()

    monkeypatch.setattr(run, "save", fail)
    with pytest.raises(IncompleteRunError, match="No space left"):
        run_waves(run, job, SLOTS, NoProgress())
    assert run.manifest == read_manifest(run.path)
    run_waves(run, job, SLOTS, NoProgress())
    assert written(run) == once()


def test_a_resume_leaves_out_what_is_done(run: RunDirectory, job: Job) -> None:
    job.fail = lambda _: PositionLostError("x") if len(job.calls) == 3 else None
    with pytest.raises(IncompleteRunError):
        run_waves(run, job, SLOTS, NoProgress())
    done = [span for wave in run.manifest.waves for span in wave.spans]
    assert 0 < len(done) < len(SPANS)
    job.calls.clear()
    job.fail = lambda _: None
    told = Told()
    run_waves(run, job, SLOTS, told)
    assert not set(done) & {number for _, numbers in job.calls for number in numbers}
    assert job.calls[0][0] == 2
    assert written(run) == once()
    assert told.waves[-1].spans == len(SPANS)


def test_a_run_that_is_whole_does_nothing(run: RunDirectory, job: Job) -> None:
    run_waves(run, job, SLOTS, NoProgress())
    job.calls.clear()
    run_waves(run, job, SLOTS, NoProgress())
    assert job.calls == []


def test_a_wave_whose_file_is_damaged_is_run_again(run: RunDirectory, job: Job) -> None:
    run_waves(run, job, SLOTS, NoProgress())
    lost = run.manifest.waves[1]
    (run.path / lost.files[0].name).write_text("")
    job.calls.clear()
    run_waves(run, job, SLOTS, NoProgress())
    assert {number for _, numbers in job.calls for number in numbers} == set(lost.spans)
    assert written(run) == once()


def test_a_plan_that_was_shortened(run: RunDirectory, job: Job) -> None:
    plan = run.path / "plan.jsonl"
    plan.write_text("".join(plan.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(StoreError, match="its checksum differs"):
        run_waves(run, job, SLOTS, NoProgress())
    assert job.calls == []


def test_the_time_left(run: RunDirectory, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1_000))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    told = Told()
    run_waves(run, job, SLOTS, told)
    first = told.waves[0]
    assert (first.seconds, first.spans, first.seconds_left) == (1, 4, 9)


def test_attempts_of_one_wave_have_one_number(run: RunDirectory, job: Job) -> None:
    job.fail = lambda numbers: UnavailableError("x") if len(numbers) > 1 else None
    run_waves(run, job, SLOTS, NoProgress())
    numbers: list[Wave] = run.manifest.waves
    assert [wave.number for wave in numbers] == list(range(len(SPANS)))
