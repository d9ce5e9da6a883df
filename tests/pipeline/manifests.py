"""Manifests of runs: edited, with a checksum that fits, and those of runs without a report."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kip30.pipeline.run.directory import RunDirectory, read_manifest
from kip30.pipeline.run.manifest import MANIFEST_NAME, with_checksum
from kip30.pipeline.run.report import Report


def edit_manifest(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Let *edit* change the fields of the manifest in *folder*."""
    file = folder / MANIFEST_NAME
    fields = json.loads(file.read_text())
    del fields["format"], fields["checksum"]
    edit(fields)
    file.write_text(with_checksum(fields))


def expect_done_with_the_report(
    out: Path, job: str, arguments: Mapping[str, Any], run: Callable[[], Report]
) -> Report:
    """Require that the *run* in *out* is done once its report can be written; return that."""
    with RunDirectory(out, job, arguments):
        (out / "report.json").mkdir()
    with pytest.raises(OSError, match=r"report\.json"):
        run()
    assert not read_manifest(out).done
    (out / "report.json").rmdir()
    report = run()
    assert read_manifest(out).done
    assert json.loads((out / "report.json").read_text())["ending"] == report.ending.value
    return report
