"""Results as JSON, which one run after another fills."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.report.figure import Figure


@dataclass(frozen=True)
class Results:
    """The figures of one subject of one *store*, and the load before and after."""

    store: str
    subject: str
    load: tuple[float, float]
    figures: Sequence[Figure]


def merge(file: Path, machine: dict[str, str], new: Results) -> None:
    """Put *new* into *file*, in place of what it has of the same subject."""
    kept = read(file) if file.exists() else []
    everything = {(one.store, one.subject): one for one in kept}
    everything[new.store, new.subject] = new
    results = [_content(one) for one in everything.values()]
    content = {"machine": machine, "results": results}
    file.write_text(json.dumps(_rounded(content), indent=1) + "\n")


def read(file: Path) -> list[Results]:
    content = json.loads(file.read_text())
    return [
        Results(
            one["store"],
            one["subject"],
            tuple(one["load"]),
            [_figure(figure) for figure in one["figures"]],
        )
        for one in content["results"]
    ]


def _content(one: Results) -> dict[str, Any]:
    """Return *one* as the file has it, where each figure repeats the subject."""
    figures = [{"subject": one.subject, **asdict(figure)} for figure in one.figures]
    return asdict(one) | {"figures": figures}


def _figure(content: dict[str, Any]) -> Figure:
    values = {key: value for key, value in content.items() if key != "subject"}
    return Figure(**values | {"samples": tuple(content["samples"])})


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return float(f"{value:.4g}")
        case dict():
            return {key: _rounded(item) for key, item in value.items()}
        case list() | tuple():
            return [_rounded(item) for item in value]
        case _:
            return value
