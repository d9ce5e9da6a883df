"""Runs the waves of a plan one after the other, each entered in the manifest once it is done."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kip30.driver.scanning import Span
from kip30.errors import (
    AuthenticationError,
    ConfigError,
    Kip30Error,
    NotElectedError,
    PositionLostError,
    UnsupportedError,
)
from kip30.pipeline.run.directory import RunDirectory, sync_folder
from kip30.pipeline.run.job_errors import IncompleteRunError, JobFailedError
from kip30.pipeline.run.manifest import DataFile, Digest, Wave
from kip30.pipeline.run.progress import Progress, WaveProgress
from kip30.pipeline.run.waves import Waves

_log: logging.Logger = logging.getLogger(__name__)

_ATTEMPTS = 2
_FINAL = (PositionLostError, AuthenticationError, ConfigError, NotElectedError, UnsupportedError)
"""Another attempt would end in the same way."""


class WaveResult(NamedTuple):
    """The results of a wave."""

    digest: Digest
    counts: Mapping[str, int]
    files: tuple[DataFile, ...]


RunWave = Callable[[int, Sequence[Span]], WaveResult]
"""Does the wave of a number. It may be called again for a number that failed."""


def run_waves(run: RunDirectory, run_wave: RunWave, slots: int, progress: Progress) -> None:
    """Run the rest of the plan of *run*.

    A wave whose job fails twice is halved, down to one span.

    Raises:
        IncompleteRunError: A single span failed twice, or an error will come again, or the folder
            of the run cannot be written. The error is the cause.
        StoreError: The plan of the run is damaged.
    """
    spans = run.plan()
    manifest = run.manifest
    for damage in run.drop_damaged_waves():
        _log.warning("a wave is run again: %s", damage)
    waves = Waves(spans, manifest.finished_spans, manifest.run, slots)
    while numbers := waves.next():
        try:
            wave = _attempted(run, run_wave, numbers, [spans[number] for number in numbers])
        except (Kip30Error, JobFailedError) as error:
            if isinstance(error, _FINAL):
                raise IncompleteRunError(str(error)) from error
            if len(numbers) == 1:
                raise IncompleteRunError(f"span {numbers[0]}: {error}") from error
            _log.warning("a wave of %d spans failed and is halved: %s", len(numbers), error)
            waves.halve(numbers)
            continue
        except OSError as error:
            raise _unwritten(run, error) from error
        _enter(run, wave)
        waves.adapt(numbers, wave.seconds)
        progress.wave(_progress(run, wave, spans))


def _enter(run: RunDirectory, wave: Wave) -> None:
    """Note that *wave* is done, once a crash of the machine cannot take its files back."""
    waves = run.manifest.waves
    try:
        for folder in {(run.path / file.name).parent for file in wave.files}:
            sync_folder(folder)
        run.manifest.waves = [*waves, wave]
        run.save()
    except OSError as error:
        run.manifest.waves = waves
        raise _unwritten(run, error) from error


def _unwritten(run: RunDirectory, error: OSError) -> IncompleteRunError:
    return IncompleteRunError(f"{run.path} cannot be written: {error}")


def _attempted(
    run: RunDirectory, run_wave: RunWave, numbers: Sequence[int], spans: Sequence[Span]
) -> Wave:
    number = run.manifest.next_wave
    attempt = 1
    while True:
        begun = time.monotonic()
        try:
            digest, counts, files = run_wave(number, spans)
        except _FINAL:
            raise
        except (Kip30Error, JobFailedError) as error:
            if attempt == _ATTEMPTS:
                raise
            _log.warning("wave %d failed and is run again: %s", number, error)
            attempt += 1
            continue
        return Wave(
            number=number,
            spans=tuple(numbers),
            attempts=attempt,
            digest=digest,
            counts=dict(counts),
            files=files,
            seconds=time.monotonic() - begun,
        )


def _progress(run: RunDirectory, wave: Wave, spans: Sequence[Span]) -> WaveProgress:
    finished = run.manifest.finished_spans
    left = sum(span.rows for number, span in enumerate(spans) if number not in finished)
    rows = sum(spans[number].rows for number in wave.spans)
    return WaveProgress(
        wave=wave.number,
        spans=len(finished),
        planned=len(spans),
        rows=wave.digest.rows,
        size=sum(file.size for file in wave.files),
        seconds=wave.seconds,
        seconds_left=left * wave.seconds / max(rows, 1),
    )
