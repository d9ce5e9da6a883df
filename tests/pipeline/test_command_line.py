"""``kip30 pipeline`` in this process, with the session that the tests share."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from kip30.cli._exit_codes import Status
from kip30.cli._schema import SCHEMA
from kip30.cli.program import program
from kip30.pipeline.run.directory import RunDirectory
from kip30.pipeline.run.manifest import SNAPSHOT_JOB
from kip30.pipeline.stores.endpoints import parse_endpoint, store_endpoint
from kip30.pipeline.transfer.snapshot import SnapshotOptions
from kip30.pipeline.transfer.view_reader import ViewReader
from kip30_conformance.clients.default_signals import heeded
from kip30_conformance.servers import start
from tests.unit.etcd.admin import Admin

from .store import embedded, fill, lines, write_properties

pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(autouse=True)
def heeded_signals() -> Iterator[None]:
    with heeded():
        yield


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start("etcd", folder=tmp_path_factory.mktemp("etcd")) as servers:
        yield servers.nodes[0].address


def _kip30(*words: object) -> Result:
    return CliRunner().invoke(program, ["pipeline", *map(str, words)], prog_name="kip30")


def test_a_snapshot(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = _kip30("snapshot", embedded(tmp_path, 30), "--out", out)
    assert result.exit_code == Status.OK, result.stderr
    assert "rows\t30" in result.stdout
    assert "1/1 spans" in result.stderr
    assert out.stat().st_mode & 0o777 == 0o700
    assert (out / "report.html").exists()
    assert "value 7" not in (out / "report.html").read_text()


def test_json_has_a_line_for_each_wave_and_the_report(tmp_path: Path) -> None:
    words = ("--out", tmp_path / "run", "--span-rows", 5, "--json")
    result = _kip30("snapshot", embedded(tmp_path, 30), *words)
    assert result.exit_code == Status.OK, result.stderr
    *waves, report = lines(result.stdout)
    assert sum(wave["rows"] for wave in waves) == 30
    assert waves[-1]["spans"] == waves[-1]["planned"]
    documented = {field.name for field in SCHEMA["pipeline snapshot"]}
    assert {*waves[0], *report} == documented
    assert report["ending"] == "done"


def test_the_chosen_store_is_read(tmp_path: Path) -> None:
    file = embedded(tmp_path, 3)
    words = ("snapshot", "--out", tmp_path / "run", "--config", file)
    changed = (*words, "--set", "plugin.namespace=other", "-", "--json")
    assert lines(_kip30(*changed).stdout)[-1]["counts"]["rows"] == 0
    shutil.rmtree(tmp_path / "run")
    assert lines(_kip30(*words, "-", "--json").stdout)[-1]["counts"]["rows"] == 3


def test_a_repair_follows_the_plan_that_it_is_given(tmp_path: Path) -> None:
    left, right = (
        embedded(_made(tmp_path / name), number) for name, number in (("a", 3), ("b", 0))
    )
    compared = tmp_path / "compared"
    assert _kip30("diff", left, right, "--out", compared).exit_code == Status.REFUSED
    planned = _kip30("repair", compared, "--out", tmp_path / "planned")
    assert planned.exit_code in {Status.OK, Status.REFUSED}, planned.stderr
    words = ("--apply", "--plan", tmp_path / "planned", "--rate", 1000, "--delete-extra")
    applied = _kip30("repair", compared, "--out", tmp_path / "applied", *words)
    assert applied.exit_code == Status.OK, applied.stderr
    assert _kip30("diff", left, right, "--out", tmp_path / "again").exit_code == Status.OK
    nothing = _kip30("repair", compared, "--out", tmp_path / "x", "--apply", "--plan", tmp_path)
    assert nothing.exit_code == Status.USAGE
    assert "there is no run in it" in nothing.stderr


def test_a_snapshot_is_verified_without_a_target(tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert _kip30("snapshot", embedded(tmp_path, 30), "--out", run).exit_code == Status.OK
    whole = _kip30("verify", run, "--json")
    assert whole.exit_code == Status.OK, whole.stderr
    (found,) = lines(whole.stdout)
    assert found.keys() == {field.name for field in SCHEMA["pipeline verify"]}
    assert (found["files"] > 0, found["damaged"]) == (True, [])
    file = next(run.rglob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    damaged = _kip30("verify", run)
    assert damaged.exit_code == Status.REFUSED
    assert f"{file}, of wave 0, is not as it was written" in damaged.stdout
    file.unlink()
    assert f"{file}, of wave 0, is missing" in _kip30("verify", run).stdout
    nothing = _kip30("verify", tmp_path)
    assert nothing.exit_code == Status.USAGE
    assert f"{tmp_path} has no manifest.json: name the folder of a run" in nothing.stderr


def test_the_status_of_a_run_is_shown(tmp_path: Path) -> None:
    source, target, run = embedded(_made(tmp_path / "a"), 9), tmp_path / "b", tmp_path / "run"
    goal = embedded(_made(target), 0)
    assert _kip30("migrate", source, goal, "--out", run).exit_code == Status.OK
    (found,) = lines(_kip30("status", run, "--json").stdout)
    assert found.keys() == {field.name for field in SCHEMA["pipeline status"]}
    assert (found["job"], found["state"], found["pid"]) == ("migrate", "done", None)
    assert found["counts"]["written"] == 9
    assert [part["job"] for part in found["parts"]] == ["snapshot"]
    shown = _kip30("status", run).stdout
    assert "state\tdone" in shown
    assert "snapshot.rows\t9" in shown
    begun = tmp_path / "begun"
    with RunDirectory(begun, SNAPSHOT_JOB, {}):
        assert f"pid\t{os.getpid()}" in _kip30("status", begun).stdout
    assert "state\tstopped" in _kip30("status", begun).stdout


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_settings_of_spark_are_written_as_pairs(tmp_path: Path) -> None:
    result = _kip30("snapshot", embedded(tmp_path, 1), "--out", tmp_path / "run", "--conf", "x")
    assert result.exit_code == Status.USAGE
    assert "--conf x: write it as KEY=VALUE" in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_position_that_is_lost_leaves_the_run_incomplete(
    spark: SparkSession, tmp_path: Path
) -> None:
    file, out = embedded(tmp_path, 30), tmp_path / "run"
    source = store_endpoint(parse_endpoint(str(file)))
    options = SnapshotOptions(source=source, out=out)
    with RunDirectory(out, SNAPSHOT_JOB, options.arguments()) as run:
        ViewReader(spark, source, run, span_rows=20_000).begin()
    shutil.rmtree(out / "scratch")
    result = _kip30("snapshot", file, "--out", out, "--resume")
    assert result.exit_code == Status.INCOMPLETE, result.stderr
    assert "the same with --resume continues" in result.stderr
    assert (out / "report.json").exists()


def test_an_unreachable_store_is_no_incomplete_run(tmp_path: Path) -> None:
    settings = {"plugin.backend": "etcd", "plugin.etcd.endpoints": "127.0.0.1:1"}
    more = {"plugin.connect.timeout.ms": "500", "plugin.operation.timeout.ms": "500"}
    file = write_properties(tmp_path / "etcd.properties", settings | more)
    result = _kip30("snapshot", file, "--out", tmp_path / "run")
    assert result.exit_code == Status.UNAVAILABLE, result.stderr


def test_a_tree_of_another_program_is_pointed_out(tmp_path: Path, etcd: str) -> None:
    settings = {"plugin.backend": "etcd", "plugin.etcd.endpoints": etcd}
    file = write_properties(
        tmp_path / "etcd.properties", settings | {"plugin.namespace": tmp_path.name}
    )
    Admin(etcd).put("/foreign/key", b"x")
    result = _kip30("snapshot", file, "--out", tmp_path / "run")
    assert result.exit_code == Status.REFUSED, result.stderr
    assert f"no keys under /{tmp_path.name}; raw:FILE reads the tree as it is" in result.stderr


def test_keys_below_our_root_are_findings(tmp_path: Path, etcd: str) -> None:
    root = f"root-{tmp_path.name}"
    settings = {"plugin.backend": "etcd", "plugin.etcd.endpoints": etcd, "plugin.namespace": root}
    file = write_properties(tmp_path / "etcd.properties", settings)
    fill(file, 2)
    Admin(etcd).put(f"/{root}/kv/ns/foreign", b"not ours")
    result = _kip30("snapshot", file, "--out", tmp_path / "run")
    assert result.exit_code == Status.REFUSED, result.stderr
    assert f"rejected\t/{root}/kv/ns/foreign\t" in result.stdout
    looked = _kip30("preflight", file, "--json")
    assert looked.exit_code == Status.REFUSED
    assert lines(looked.stdout)[-1]["counts"]["rejected"] == 1


class TestPreflight:
    """Problems that would make a job fail are found."""

    def test_nothing(self, tmp_path: Path) -> None:
        file = embedded(tmp_path, 3)
        result = _kip30("preflight", file, "--json")
        assert result.exit_code == Status.OK, result.stdout
        (report,) = lines(result.stdout)
        assert report["counts"] == {"slots_connected": 2, "rows": 3, "rejected": 0}
        assert {path.name for path in tmp_path.iterdir()} == {file.name, "store"}

    def test_the_same_store_twice(self, tmp_path: Path) -> None:
        file = embedded(tmp_path, 3)
        (report,) = lines(_kip30("preflight", file, file, "--json").stdout)
        assert [one["outcome"] for one in report["findings"]] == ["same-store"]

    def test_a_store_that_is_down(self, tmp_path: Path) -> None:
        down = {"plugin.backend": "etcd", "plugin.etcd.endpoints": "127.0.0.1:1"}
        more = {"plugin.connect.timeout.ms": "500", "plugin.operation.timeout.ms": "500"}
        target = write_properties(tmp_path / "down.properties", down | more)
        result = _kip30("preflight", embedded(tmp_path, 3), target, "--json")
        assert result.exit_code == Status.REFUSED
        assert [one["outcome"] for one in lines(result.stdout)[-1]["findings"]] == ["driver"]

    def test_values_that_the_target_does_not_take(self, tmp_path: Path, etcd: str) -> None:
        raw = {"plugin.backend": "etcd", "plugin.etcd.endpoints": etcd}
        source = write_properties(tmp_path / "etcd.properties", raw)
        Admin(etcd).put(f"/{tmp_path.name}/large", b"x" * 300_000)
        where = f"raw:{source}#/{tmp_path.name}/"
        (report,) = lines(_kip30("preflight", where, embedded(tmp_path, 1), "--json").stdout)
        assert [one["outcome"] for one in report["findings"]] == ["too-large"]

    def test_secrets_stay_here(self, tmp_path: Path, etcd: str) -> None:
        settings = {
            "plugin.backend": "etcd",
            "plugin.etcd.endpoints": etcd,
            "plugin.etcd.user": "u",
            "plugin.etcd.password": "hunter2",
        }
        file = write_properties(tmp_path / "etcd.properties", settings)
        result = _kip30("preflight", file, "--json", "--master", "spark://127.0.0.1:1")
        (report,) = lines(result.stdout)
        (finding,) = report["findings"]
        assert "plugin.etcd.password" in finding["detail"]
        assert "hunter2" not in result.output
