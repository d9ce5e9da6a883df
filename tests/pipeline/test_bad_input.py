"""Faults of stores, snapshots and runs, which end a job before anything is written."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from kip30 import PluginLocator
from kip30.cli._exit_codes import Status
from kip30.cli.program import program
from kip30.errors import StoreError, UsageError
from kip30.pipeline.run.directory import RunDirectory, read_manifest
from kip30.pipeline.run.manifest import FORMAT, SNAPSHOT_JOB
from kip30.pipeline.stores.endpoints import SnapshotEndpoint
from kip30.pipeline.transfer.snapshot_files import SnapshotFiles
from kip30_conformance.clients.default_signals import heeded
from tests.gate.sizes import others_large

from .manifests import edit_manifest
from .store import embedded, fill, lines, write_properties

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(autouse=True)
def heeded_signals() -> Iterator[None]:
    with heeded():
        yield


def _kip30(*words: object) -> Result:
    return CliRunner().invoke(program, ["pipeline", *map(str, words)], prog_name="kip30")


def test_the_embedded_store_has_no_raw_view(tmp_path: Path) -> None:
    result = _kip30("snapshot", f"raw:{embedded(tmp_path, 1)}", "--out", tmp_path / "run")
    assert result.exit_code == Status.UNSUPPORTED, result.stderr


def test_a_variable_that_is_not_set_is_named(tmp_path: Path) -> None:
    settings = {
        "plugin.backend": "etcd",
        "plugin.etcd.endpoints": "127.0.0.1:1",
        "plugin.etcd.user": "u",
        "plugin.etcd.password": "${env:KIP30_NOT_SET_ANYWHERE}",
    }
    file = write_properties(tmp_path / "etcd.properties", settings)
    result = _kip30("snapshot", file, "--out", tmp_path / "run")
    assert result.exit_code == Status.USAGE, result.stderr
    assert "KIP30_NOT_SET_ANYWHERE" in result.stderr
    (report,) = lines(_kip30("preflight", file, "--json").stdout)
    (finding,) = report["findings"]
    assert "KIP30_NOT_SET_ANYWHERE" in finding["detail"]


def test_a_variable_that_is_not_set_in_a_worker_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's workers have the environment of the moment at which it began."""
    file = embedded(tmp_path, 3)
    text = file.read_text().replace(str(tmp_path / "store"), "${env:KIP30_DRIVER_ALONE}")
    file.write_text(text)
    monkeypatch.setenv("KIP30_DRIVER_ALONE", str(tmp_path / "store"))
    result = _kip30("preflight", file, "--json")
    assert result.exit_code == Status.REFUSED, result.output
    (report,) = lines(result.stdout)
    for finding in report["findings"]:
        assert "KIP30_DRIVER_ALONE is not set" in finding["detail"]
        assert socket.gethostname() in finding["detail"]
    result = _kip30("snapshot", file, "--out", tmp_path / "run", "--json")
    assert result.exit_code == Status.INCOMPLETE, result.output
    reason = lines(result.stdout)[-1]["reason"]
    assert reason.startswith(f"a worker on {socket.gethostname()} cannot use the configuration")
    assert "KIP30_DRIVER_ALONE is not set" in reason
    assert not list(tmp_path.rglob("wave=*/*.parquet"))


def test_a_repair_needs_compare_and_set(tmp_path: Path) -> None:
    """No folder is made, with or without ``--apply``."""
    file, run = embedded(tmp_path, 3), tmp_path / "diff"
    assert _kip30("snapshot", file, "--out", tmp_path / "taken").exit_code == Status.OK
    fill(file, 4, "more")
    assert _kip30("diff", tmp_path / "taken", file, "--out", run).exit_code == Status.REFUSED
    settings = {
        "plugin.locator.classname": "odd_stores:WithoutCompareAndSet",
        "plugin.additional.paths": Path(__file__).parent,
        "plugin.embedded.directory": tmp_path / "store",
    }
    write_properties(file, settings)
    for more in ((), ("--apply",)):
        result = _kip30("repair", run, "--out", tmp_path / "repair", *more)
        assert result.exit_code == Status.UNSUPPORTED, result.output
        assert "does not offer compare-and-set" in result.stderr
        assert not (tmp_path / "repair").exists()


def test_a_run_that_another_process_works_in(tmp_path: Path) -> None:
    file, out = embedded(tmp_path, 1), tmp_path / "run"
    arguments = {"source": str(file), "span_rows": 20_000, "show_claims": False}
    with RunDirectory(out, SNAPSHOT_JOB, arguments):
        result = _kip30("snapshot", file, "--out", out, "--resume")
    assert result.exit_code == Status.USAGE
    assert "another process works in" in result.stderr


def _without_manifest(run: Path, _found: dict[str, Any]) -> None:
    (run / "manifest.json").unlink()


def _not_done(run: Path, _found: dict[str, Any]) -> None:
    edit_manifest(run, lambda fields: fields.update(done=False))


def _newer(run: Path, found: dict[str, Any]) -> None:
    (run / "manifest.json").write_text(json.dumps(found | {"format": FORMAT + 1}))


def _of_another_job(run: Path, _found: dict[str, Any]) -> None:
    edit_manifest(run, lambda fields: fields.update(job="diff"))


def _with_another_digit(run: Path, found: dict[str, Any]) -> None:
    text = json.dumps(found).replace('"span_rows": 20000', '"span_rows": 20001')
    (run / "manifest.json").write_text(text)


def _torn(run: Path, found: dict[str, Any]) -> None:
    (run / "manifest.json").write_text(json.dumps(found)[:-20])


def _without_file(run: Path, _found: dict[str, Any]) -> None:
    next(run.rglob("*.parquet")).unlink()


def _short(run: Path, _found: dict[str, Any]) -> None:
    file = next(run.rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])


def _other(run: Path, _found: dict[str, Any]) -> None:
    """Change the file of a wave, but not its length."""
    file = next(run.rglob("*.parquet"))
    table = pq.read_table(file)
    changed = table.set_column(1, "value", pa.array([b"other"] * len(table), pa.binary()))
    pq.write_table(changed, file, compression="zstd")

    def resize(fields: dict[str, Any]) -> None:
        fields["waves"][0]["files"][0]["size"] = file.stat().st_size

    edit_manifest(run, resize)


def _with_holes(run: Path, _found: dict[str, Any]) -> None:
    file = next(run.rglob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[4 : len(data) // 2] = bytes(len(data) // 2 - 4)
    file.write_bytes(data)


_DAMAGES = [
    (_without_manifest, "manifest.json"),
    (_not_done, "is not done"),
    (_newer, f"the format {FORMAT + 1}"),
    (_of_another_job, "a run of diff"),
    (_torn, "damaged"),
    (_with_another_digit, "its checksum differs"),
    (_without_file, "of wave 0, is missing"),
    (_short, "of wave 0, has"),
]


@pytest.mark.parametrize(("damage", "told"), _DAMAGES)
def test_a_snapshot_that_is_not_whole(
    spark: SparkSession, tmp_path: Path, damage: Callable[[Path, dict[str, Any]], None], told: str
) -> None:
    run = tmp_path / "run"
    assert _kip30("snapshot", embedded(tmp_path, 3), "--out", run).exit_code == Status.OK
    damage(run, json.loads((run / "manifest.json").read_text()))
    error = UsageError if damage is _without_manifest else StoreError
    with pytest.raises(error, match=told):
        SnapshotFiles(spark, SnapshotEndpoint(str(run), run, ""))
    result = _kip30("preflight", run)
    assert result.exit_code in {Status.USAGE, Status.REFUSED}
    assert told in result.output


@pytest.mark.parametrize(
    ("damage", "told"),
    [*_DAMAGES, (_other, "wave 0, is not as"), (_with_holes, "wave 0, is not as")],
)
@pytest.mark.parametrize("job", others_large(["restore", "diff"]))
def test_of_a_snapshot_that_is_not_whole_nothing_is_written(
    tmp_path: Path, job: str, damage: Callable[[Path, dict[str, Any]], None], told: str
) -> None:
    run = tmp_path / "run"
    assert _kip30("snapshot", embedded(tmp_path, 3), "--out", run).exit_code == Status.OK
    damage(run, json.loads((run / "manifest.json").read_text()))
    target = {"plugin.backend": "embedded", "plugin.embedded.directory": tmp_path / "target"}
    file = write_properties(tmp_path / "target.properties", target)
    fill(file, 1, "elsewhere")
    result = _kip30(job, run, file, "--out", tmp_path / "out")
    assert result.exit_code in {Status.USAGE, Status.UNAVAILABLE, Status.INCOMPLETE}, result.output
    assert told in result.stderr + result.stdout
    assert "Traceback" not in result.stderr
    with PluginLocator().startup(file) as locator:
        assert list(locator.storage().list("ns")) == []
    assert not list((tmp_path / "out").rglob("outcomes/**/*.parquet"))
    assert not list((tmp_path / "out").rglob("differences/**/*.parquet"))


def test_a_refused_call_leaves_a_finished_snapshot_unchanged(tmp_path: Path) -> None:
    file, run = embedded(tmp_path, 3), tmp_path / "run"
    assert _kip30("snapshot", file, "--out", run).exit_code == Status.OK
    before = read_manifest(run).to_json()
    for more in ((), ("--resume",)):
        assert _kip30("snapshot", file, "--out", run, *more).exit_code == Status.USAGE
    assert read_manifest(run).to_json() == before
