"""The catalogue of the suite: every check with its case, its level, and a sentence."""

import inspect
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kip30 import ConfigError
from kip30_conformance.all_suites import SUITES
from kip30_conformance.report.results import CheckOutcome, Level, case_id


class Listed(NamedTuple):
    """One check of the suite; with parameters it runs several times."""

    case: str
    level: Level
    name: str
    about: str


def listed() -> list[Listed]:
    """Return all checks, by case. Needs no store."""
    return sorted(_all(), key=lambda one: (one.case, one.name))


def failed_in(folder: Path) -> Sequence[str]:
    """Return the cases that failed, or proved nothing, in the run that left its report in *folder*.

    Raises:
        ConfigError: There is no report of this version there, or the run was interrupted before any
            case failed.
    """
    try:
        report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        bad = {CheckOutcome.FAILED.value, CheckOutcome.NO_EVIDENCE.value}
        checks, is_part = report["checks"], report.get("interrupted", False)
        cases = sorted({one["case"] for one in checks if one["outcome"] in bad and one["case"]})
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{folder} has no report that says what failed ({error}): run without --failed first,"
            " or name the folder of a run by --out"
        ) from error
    if is_part and not cases:
        raise ConfigError(
            f"the last run of {folder} was interrupted before anything failed: run without --failed"
        )
    return cases


def _all() -> Iterator[Listed]:
    for suite in SUITES:
        for name, function in vars(suite).items():
            if name.startswith("test_"):
                markers = {*_markers(suite), *_markers(function)}
                about = (inspect.getdoc(function) or "").partition("\n")[0]
                yield Listed(case_id(name), Level.of(markers), name, about)


def _markers(marked: Any) -> Iterator[str]:
    marks: list[Any] = getattr(marked, "pytestmark", [])
    return (str(mark.name) for mark in marks)
