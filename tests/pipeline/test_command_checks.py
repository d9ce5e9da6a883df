"""Calls of the pipeline that end before Spark starts."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from kip30.cli._exit_codes import Status
from kip30.config.extras import how_to_install
from kip30.pipeline.run.manifest import with_checksum
from kip30.pipeline.spark import requirements
from kip30.pipeline.spark.requirements import _NEEDED, check_requirements
from tests.unit.cli.conftest import heeded_signals, shell
from tests.unit.cli.shell import Shell, without

TOYSTORE = Path(__file__).parent.parent / "toystore"
HOW = how_to_install("spark")
LOOPBACK = "plugin.backend = etcd\nplugin.etcd.endpoints = {}\n"


__all__ = ["heeded_signals", "shell"]  # fixtures of the other commands' tests


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_words: object, **_options: object) -> None:
        pytest.fail("Spark was started")

    monkeypatch.setattr("kip30.pipeline.spark.session._opened", refuse)


def _file(shell: Shell, name: str, text: str) -> str:
    (shell.folder / name).write_text(text)
    return name


def _fails(shell: Shell, status: Status, *words: str) -> str:
    before = {path for path in shell.folder.rglob("*") if "store" not in path.parts}
    result = shell("pipeline", *words)
    assert result.exit_code == status, result.stderr
    assert not {path for path in shell.folder.rglob("*") if "store" not in path.parts} - before
    return result.stderr


@pytest.mark.parametrize("package", _NEEDED)
def test_without_spark_the_extra_is_named(shell: Shell, package: str) -> None:
    result = without(package, "pipeline", "snapshot", str(shell.properties), "--out", "run")
    assert result.returncode == Status.USAGE
    assert b"needs Spark" in result.stderr
    assert HOW.encode() in result.stderr
    assert package == "pyspark" or package.encode() in result.stderr


def test_help_needs_no_spark(shell: Shell) -> None:
    assert without("pyspark", "pipeline", "snapshot", "--help").returncode == Status.OK
    assert "preflight" in shell("pipeline", "--help").stdout


def test_the_version_of_pandas_is_named(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"pyspark": "4.3.0", "pandas": "3.1.1"}
    monkeypatch.setattr(requirements, "_version", versions.__getitem__)
    told = _fails(shell, Status.USAGE, "snapshot", str(shell.properties), "--out", "run")
    assert "pandas older than 3, and 3.1.1 is installed" in told
    assert HOW in told


def test_the_version_of_an_old_spark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"pyspark": "4.1.4", "pandas": "2.3.3"}
    monkeypatch.setattr(requirements, "_version", versions.__getitem__)
    with pytest.raises(Exception, match=r"4\.2 or newer, and 4\.1\.4 is installed"):
        check_requirements()


@pytest.mark.parametrize(
    ("version", "fits"),
    [("1.8.0_402", False), ("11.0.2", False), ("17", True), ("17.0.15", True), ("21-ea", True)],
)
def test_java_is_17_or_newer(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, version: str, *, fits: bool
) -> None:
    _fake_java(shell.folder / "jdk", version, monkeypatch)
    if fits:
        check_requirements()
        return
    told = _fails(shell, Status.USAGE, "snapshot", str(shell.properties), "--out", "run")
    assert "Java 17 or newer" in told
    assert version in told


def test_a_java_without_a_release_file_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = _fake_java(tmp_path / "jdk", "11.0.2", monkeypatch)
    (tmp_path / "jdk" / "release").unlink()
    program.write_text("#!/bin/sh\necho 'openjdk version \"12.0.1\" 2020' >&2\n")
    with pytest.raises(Exception, match=r"is 12\.0\.1"):
        check_requirements()


def test_java_is_missing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(shell.folder))
    told = _fails(shell, Status.USAGE, "snapshot", str(shell.properties), "--out", "run")
    assert "there is none" in told


def _fake_java(home: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    return program


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("snapshot", "nowhere.properties", "--out", "run"), "there is no file or folder"),
        (("snapshot", "{mine}"), "--out"),
        (("snapshot", ".", "--out", "run"), "no manifest.json"),
        (("snapshot", "{mine}", "--out", "run", "--span-rows", "0"), "span-rows"),
        (("snapshot", "{mine}", "--out", "run", "--request-seconds", "0"), "too short"),
        (("snapshot", "{mine}", "--out", "run", "--request-seconds", "nan"), "nan"),
        (("snapshot", "{mine}", "--out", "run", "--master", "x", "--remote", "y"), "contradict"),
        (("snapshot", "{mine}", "--out", "run", "--resume"), "no run to resume"),
        (("snapshot", "{mine}#a/", "--out", "run"), "leave the trailing slash out"),
        (("restore", "{mine}", "{mine}", "--out", "run"), "same store"),
        (("migrate", "{mine}", "-", "--out", "run"), "same store"),
        (("migrate", "raw:{mine}", "{other}", "--out", "run"), "--into"),
        (("restore", "{mine}", "{other}", "--out", "run", "--rate", "0"), "--rate 0"),
        (("restore", "{mine}", "{other}", "--out", "run", "--rate", "nan"), "--rate nan"),
        (("feed", "{mine}", "--out", "run", "--interval", "0.5"), "interval"),
        (("feed", "{mine}", "--out", "run", "--remote", "sc://localhost"), "--remote"),
        (("feed", "{mine}", "{mine}", "--out", "run"), "same store"),
        (("feed", "{mine}", "--out", "run", "--after", "nowhere"), "nowhere"),
        (("repair", "nowhere", "--out", "run"), "nowhere"),
        (("snapshot", "{mine}", "--out", "run", "--master", "spark://h:1"), "on this machine"),
        (("snapshot", "{mine}", "--out", "run", "--remote", "sc://h"), "on this machine"),
        (("snapshot", "{mine}", "--out", "run", "--conf", "spark.master=spark://h:1"), "on this"),
        (("snapshot", "{mine}", "--out", "run", "--properties-file", "{cluster}"), "on this mach"),
        (("snapshot", "{mine}", "--out", "run", "--properties-file", "nowhere"), "No such file"),
        (("snapshot", "{mine}", "--out", "run", "--properties-file", "{mine}"), "Spark setting"),
        (("preflight", "{mine}", "--remote", "sc://h", "--conf", "spark.a=1"), "takes no --conf"),
        (("preflight", "{mine}", "--remote", "sc://h", "--properties-file", "{cluster}"), "takes"),
        (("snapshit",), "snapshot"),
        (("restore", "raw-done", "{other}", "--out", "run"), "--into"),
        (("restore", "kip30-done", "{other}", "--out", "run", "--into", "n"), "is not raw"),
        (("restore", "kip30-done#a/", "{other}", "--out", "run"), "trailing slash"),
        (("restore", "kip30-done", "{other}#a", "--out", "run"), "leave out the '#'"),
        (("migrate", "raw:{mine}", "{other}", "--out", "run", "--into", "n/"), "trailing slash"),
        (("diff", "raw:{mine}", "{other}", "--out", "run"), "--into"),
        (("diff", "kip30-done", "raw:{other}", "--out", "run"), "--into"),
        (("diff", "{mine}", "raw-done", "--out", "run"), "--into"),
        (("diff", "{mine}", "{other}", "--out", "run", "--into", "n"), "neither"),
        (("diff", "raw-done", "{other}", "--out", "run", "--into", "/n"), "starts with '/'"),
        (("feed", "raw:{mine}", "{other}", "--out", "run"), "--into"),
        (("feed", "{mine}", "--out", "run", "--interval", "nan"), "interval"),
        (("repair", "kip30-done", "--out", "run"), "name the folder of a diff"),
        (("repair", "kip30-done", "--out", "run", "--apply", "--delete-extra"), "--plan"),
        (("repair", "kip30-done", "--out", "run", "--delete-extra"), "--plan"),
    ],
    ids=" ".join,
)
def test_usage_errors(shell: Shell, words: tuple[str, ...], told: str) -> None:
    other = _file(shell, "other.properties", "plugin.backend = embedded\n")
    for layout in ("raw", "kip30"):
        source = {"layout": layout, "under": "", "prefix": "", "is_tree": True}
        _run(shell.folder / f"{layout}-done", done=True, facts=source)
    cluster = _file(shell, "spark.conf", "spark.master spark://h:1\n")
    names = {"mine": str(shell.properties), "other": other, "cluster": cluster}
    assert told in _fails(shell, Status.USAGE, *(word.format(**names) for word in words))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("snapshot", "{toy}"), "scanning"),
        (("migrate", "{toy}", "{mine}"), "scanning"),
        (("diff", "{mine}", "{toy}"), "scanning"),
        (("diff", "{toy}", "{mine}"), "scanning"),
        (("feed", "{toy}"), "scanning"),
        (("migrate", "{mine}", "{toy}"), "--no-fence"),
        (("feed", "{mine}", "{toy}"), "fencing"),
    ],
    ids=" ".join,
)
def test_a_job_that_a_store_does_not_support_is_refused(
    shell: Shell, words: tuple[str, ...], told: str
) -> None:
    text = f"plugin.locator.classname = toystore:ToyBackend\nplugin.additional.paths = {TOYSTORE}\n"
    names = {"mine": str(shell.properties), "toy": _file(shell, "toy.properties", text)}
    chosen = (word.format(**names) for word in words)
    result = _fails(shell, Status.UNSUPPORTED, *chosen, "--out", "run")
    assert told in result
    assert "`kip30 backends` lists" in result


@pytest.mark.parametrize(
    ("store", "tool"),
    [
        ("zookeeper", "`snapshot` and `restore` of ZooKeeper's admin server"),
        ("etcd", "`etcdutl snapshot restore`"),
        ("consul", "`consul snapshot restore`"),
        ("cassandra", "`nodetool import`"),
        ("of another package", "the backup of the store itself"),
    ],
)
def test_the_backup_of_a_store_puts_raw_records_back(shell: Shell, store: str, tool: str) -> None:
    source = {"layout": "raw", "under": "", "prefix": "", "is_tree": False, "store": store}
    _run(shell.folder / "raw", done=True, facts=source)
    told = _fails(shell, Status.USAGE, "restore", "raw", str(shell.properties), "--out", "run")
    assert "raw is raw: --into NAMESPACE says which keys its records become" in told
    assert "nothing writes them back as they were: for that use" in told
    assert tool in told


def test_raw_targets_are_not_supported(shell: Shell) -> None:
    other = _file(shell, "other.properties", "plugin.backend = embedded\n")
    told = _fails(
        shell, Status.UNSUPPORTED, "restore", str(shell.properties), f"raw:{other}", "--out", "r"
    )
    assert "read and not written" in told


@pytest.mark.parametrize(
    ("folder", "told"),
    [("full", "is not a run of kip30"), ("done", "which is done"), ("begun", "--resume continues")],
)
def test_a_folder_in_use_is_refused(shell: Shell, folder: str, told: str) -> None:
    _run(shell.folder / "done", done=True)
    _run(shell.folder / "begun", done=False)
    (shell.folder / "full").mkdir()
    (shell.folder / "full" / "x").touch()
    words = ("snapshot", str(shell.properties), "--out", folder)
    result = _fails(shell, Status.USAGE, *words)
    assert told in result
    assert folder == "full" or "run-1" in result


@pytest.mark.parametrize(
    ("job", "words", "told"),
    [
        ("restore", (), "a run of restore"),
        ("snapshot", ("--span-rows", "7"), "span_rows was 20000 and is 7"),
    ],
)
def test_a_resume_takes_the_same_call(
    shell: Shell, job: str, words: tuple[str, ...], told: str
) -> None:
    _run(shell.folder / "run", done=False, job=job, source=str(shell.properties))
    (shell.folder / "run" / "lock").touch()
    given = ("snapshot", str(shell.properties), "--out", "run", "--resume", *words)
    assert told in _fails(shell, Status.USAGE, *given)


def _run(
    folder: Path,
    *,
    done: bool,
    job: str = "snapshot",
    source: str = "x",
    facts: Mapping[str, object] | None = None,
) -> None:
    folder.mkdir()
    arguments = {"source": source, "span_rows": 20_000, "show_claims": False}
    manifest = {
        "job": job,
        "run": "run-1",
        "arguments": arguments,
        "created": 1.0,
    }
    more: dict[str, object] = {
        "versions": {},
        "source": facts or {},
        "planned": None,
        "waves": [],
        "counts": {},
        "done": done,
    }
    (folder / "manifest.json").write_text(with_checksum(manifest | more))


def test_a_secret_that_is_written_out_stays_here(shell: Shell) -> None:
    text = LOOPBACK.format("127.0.0.1:1") + "plugin.etcd.user = u\nplugin.etcd.password = hunter2\n"
    file = _file(shell, "etcd.properties", text)
    told = _fails(shell, Status.USAGE, "snapshot", file, "--out", "r", "--master", "spark://h:1")
    assert "plugin.etcd.password" in told
    assert "${env:NAME}" in told
    assert "hunter2" not in told


def test_a_relative_path_means_another_file_elsewhere(shell: Shell) -> None:
    text = LOOPBACK.format("127.0.0.1:1") + "plugin.etcd.tls = true\nplugin.etcd.tls.ca = ca.pem\n"
    (shell.folder / "ca.pem").touch()
    file = _file(shell, "etcd.properties", text)
    told = _fails(shell, Status.USAGE, "snapshot", file, "--out", "r", "--master", "spark://h:1")
    assert "plugin.etcd.tls.ca=ca.pem is a relative path" in told


def test_the_chosen_store_is_one_endpoint(shell: Shell) -> None:
    words = ("snapshot", "--out", "full", "--config", str(shell.properties), "--", "-#a/")
    assert "leave the trailing slash out" in _fails(shell, Status.USAGE, *words)


def test_a_chosen_store_with_a_written_secret_is_refused(shell: Shell) -> None:
    words = ["snapshot", "-", "--out", "run", "--backend", "etcd"]
    for setting in ("user=u", "password=hunter2"):
        words += ["--set", f"plugin.etcd.{setting}"]
    told = _fails(shell, Status.USAGE, *words)
    assert "plugin.etcd.password" in told
    assert "hunter2" not in told


@pytest.mark.parametrize("master", ["local[1]", "spark://127.0.0.1:1"])
@pytest.mark.parametrize("is_chosen", [False, True])
def test_a_store_in_a_pipe_is_refused_because_it_is_read_again(
    shell: Shell, master: str, *, is_chosen: bool
) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as pipe:
        pipe.write(LOOPBACK.format("127.0.0.1:1") + "plugin.namespace = billing\n")
        pipe.close()
        name = f"/dev/fd/{reading}"
        choice = ["-", "--config", name, "--set", "plugin.namespace=b"] if is_chosen else [name]
        words = ("snapshot", *choice, "--out", "r", "--master", master)
        told = _fails(shell, Status.USAGE, *words)
    assert f"{name}: not a regular file" in told
    assert "save it as one" in told


def test_a_pipe_that_a_store_names_is_refused_because_it_is_read_again(shell: Shell) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as pipe:
        pipe.write("plugin.namespace = billing\n")
        pipe.close()
        further = f"plugin.configuration.file = /dev/fd/{reading}\n"
        file = _file(shell, "etcd.properties", LOOPBACK.format("127.0.0.1:1") + further)
        told = _fails(shell, Status.USAGE, "snapshot", file, "--out", "r")
    assert f"/dev/fd/{reading}: not a regular file" in told
