"""The forms of `kip30 pipeline`, without Spark: of a run's state, of its files, and of a report."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kip30.cli._exit_codes import Status
from kip30.cli._output import Form, Output
from kip30.cli._pipeline_call import show_report
from kip30.cli._pipeline_progress import shown
from kip30.cli._schema import SCHEMA
from kip30.pipeline.run.manifest import MANIFEST_NAME, DataFile, Digest, Manifest, Wave
from kip30.pipeline.run.progress import WaveProgress
from kip30.pipeline.run.report import JobEnding, Report

from .shell import Shell
from .test_forms import yaml_documents
from .test_output import expect_fields

SNAPSHOT = Manifest(
    job="snapshot",
    run="r",
    arguments={},
    created=1.5,
    versions={},
    source={},
    planned=2,
    waves=[
        Wave(
            number=0,
            spans=(0,),
            attempts=1,
            digest=Digest(3, 0, 0),
            counts={},
            files=(DataFile("data/lost", 10, "0a"),),
            seconds=0.5,
        )
    ],
    counts={"rows": 3},
    done=True,
)
REPORT = Report(
    job="diff",
    run="r",
    ending=JobEnding.FINDINGS,
    counts={"rows": 3},
    facts={"position": ("a", 1e-05)},
    findings=[{"outcome": "differs", "key": "n/\tk", "detail": ""}],
)


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A run of a migration, with that of its snapshot, one of whose files is missing."""
    for folder, job in ((tmp_path, "migrate"), (tmp_path / "snapshot", "snapshot")):
        folder.mkdir(exist_ok=True)
        (folder / MANIFEST_NAME).write_text(replace(SNAPSHOT, job=job).to_json())
    return str(tmp_path)


def test_the_state_of_a_run_has_a_name_and_a_value_a_line(shell: Shell, run: str) -> None:
    lines = shell("pipeline", "status", run).stdout.splitlines()
    assert lines[:3] == ["job\tmigrate", "run\tr", "state\tdone"]
    assert "rows\t3" in lines
    assert "snapshot.state\tdone" in lines
    assert not any(line.startswith(("pid", "parts")) for line in lines)
    titled = shell("pipeline", "status", run, "-o", "tsv").stdout.splitlines()
    assert titled == ["NAME\tVALUE", *lines]


def test_the_files_of_a_run_are_verified_in_each_form(shell: Shell, run: str) -> None:
    result = shell("pipeline", "verify", run)
    assert result.exit_code == Status.REFUSED
    lines = result.stdout.splitlines()
    names = [line.split("\t")[0] for line in lines]
    assert names[:3] == ["files", "bytes", "damaged"]
    titled = shell("pipeline", "verify", run, "-o", "table").stdout.splitlines()
    assert [line.split()[0] for line in titled] == ["NAME", *names]


@pytest.mark.parametrize("command", ["pipeline status", "pipeline verify"])
def test_objects_have_the_documented_fields(shell: Shell, run: str, command: str) -> None:
    words = (*command.split(), run)
    (record,) = shell.json_of(shell(*words, "--json").stdout)
    expect_fields(record, SCHEMA[command])
    assert yaml_documents(shell(*words, "-o", "yaml").stdout) == [record]


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        (Output(), ["rows\t3", "differs\tn/\\tk\t"]),
        (
            Output(Form.TSV),
            ["COUNT\tNUMBER", "rows\t3", "OUTCOME\tKEY\tDETAIL", "differs\tn/\\tk\t"],
        ),
        (Output(Form.TSV, has_titles=False), ["rows\t3", "differs\tn/\\tk\t"]),
    ],
)
def test_a_report_is_two_listings(
    capsys: pytest.CaptureFixture[str], output: Output, lines: list[str]
) -> None:
    show_report(REPORT, output)
    assert capsys.readouterr().out.splitlines() == lines
    show_report(replace(REPORT, findings=[]), output)
    assert capsys.readouterr().out.splitlines() == lines[: len(lines) // 2]


def test_waves_and_report_are_documents(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(Form.YAML)
    with shown(output) as progress:
        progress.wave(WaveProgress(1, 1, 2, 3, 4, 0.5, 0.5))
    show_report(REPORT, output)
    wave, report = yaml_documents(capsys.readouterr().out)
    assert (wave["wave"], wave["rows_per_second"]) == (1, 6.0)
    expected: dict[str, Any] = REPORT.record()
    assert report == {**expected, "facts": {"position": ["a", 1e-05]}, "waves": []}
