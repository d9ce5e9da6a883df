import os
import shlex
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from click.testing import CliRunner

from kip30.cli.program import program
from kip30.pipeline.spark.bundle import write_bundle

_LOOK = """
import kip30, kip30_backends.embedded
from kip30.runtime import backend_registry
from kip30.pipeline.run.report import JobEnding, Report
from kip30.pipeline.run.report_files import html
print(kip30.__file__)
print(*sorted(backend_registry.names()))
print(len(html(Report(job="snapshot", run="r", ending=JobEnding.DONE), [])))
"""


def test_stores_and_templates_are_found_inside_the_zip(tmp_path: Path) -> None:
    archive, _ = write_bundle(tmp_path / "bundle").files
    told = _python("-c", _LOOK, path=archive)
    place, names, size = told.splitlines()
    assert place.startswith(str(archive))
    assert {"embedded", "etcd", "zookeeper", "consul", "cassandra"} <= set(names.split())
    assert int(size) > 500


def test_the_job_is_the_command_line(tmp_path: Path) -> None:
    archive, job = write_bundle(tmp_path / "bundle").files
    (tmp_path / "s.properties").write_text(
        f"plugin.backend = embedded\nplugin.embedded.directory = {tmp_path / 'store'}\n"
    )
    words = (str(job), "--config", str(tmp_path / "s.properties"), "kv")
    _python(*words, "put", "n/k", "v", path=archive)
    assert _python(*words, "get", "n/k", path=archive) == "v"


def test_the_same_kip30_makes_the_same_file(tmp_path: Path) -> None:
    first, _ = write_bundle(tmp_path / "a").files
    second, _ = write_bundle(tmp_path / "b").files
    assert first.read_bytes() == second.read_bytes()
    names = ZipFile(first).namelist()
    assert not [name for name in names if "__pycache__" in name or "conformance/" in name]


def test_the_command_can_be_pasted(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    result = CliRunner().invoke(program, ["pipeline", "bundle", "--out", str(folder)])
    assert result.exit_code == 0, result.stderr
    words = shlex.split(result.stdout)
    assert words[0] == "spark-submit"
    assert str(folder / "kip30.zip") in words
    assert str(folder / "kip30-job.py") in words


def _python(*words: str, path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(path), "PYTHONSAFEPATH": "1"}
    return subprocess.run(
        [sys.executable, *words], env=environment, check=True, capture_output=True, text=True
    ).stdout
