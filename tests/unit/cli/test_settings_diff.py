"""`kip30 config --diff`: the settings in which two properties files differ."""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kip30.cli._exit_codes import Status
from kip30.cli._schema import SCHEMA
from kip30.config import safe_read
from kip30_conformance.polling import time_scale

from .shell import PATIENCE_SECONDS, Shell
from .test_config import VAULT
from .test_output import expect_fields

LEFT = "left.properties"
RIGHT = "right.properties"
SECRET = "hunter2"  # noqa: S105
EMBEDDED = {"plugin.backend": "embedded", "plugin.embedded.directory": "/store"}


class Files:
    """Two properties files, and their difference."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell

    def write(self, left: Mapping[str, object], right: Mapping[str, object]) -> None:
        for name, settings in ((LEFT, left), (RIGHT, right)):
            lines = [f"{key} = {value}\n" for key, value in settings.items()]
            (self.shell.folder / name).write_text("".join(lines))

    def diff(self, *words: str) -> Any:
        return self.shell("config", "--diff", LEFT, RIGHT, *words)

    def rows(self, *words: str) -> dict[str, list[str]]:
        lines = self.diff(*words).stdout.splitlines()
        return {key: fields for key, *fields in (line.split("\t") for line in lines)}


@pytest.fixture
def files(shell: Shell) -> Files:
    return Files(shell)


@pytest.fixture
def vaults(files: Files) -> Files:
    """Files for a store that is a plugin, whose constructor raises and whose import is noted."""
    noting = f"open({str(files.shell.folder / 'loaded')!r}, 'w').close()\n"
    (files.shell.folder / "vault.py").write_text(noting + VAULT)
    return files


def vault(files: Files, address: str = "here") -> dict[str, object]:
    return {
        "plugin.locator.classname": "vault:Vault",
        "plugin.additional.paths": files.shell.folder,
        "plugin.vault.address": address,
    }


def test_files_that_mean_the_same_have_no_difference(files: Files) -> None:
    files.write(EMBEDDED, EMBEDDED)
    result = files.diff()
    assert (result.exit_code, result.output) == (Status.OK, "")
    assert files.diff("-o", "json").output == ""


def test_a_difference_has_both_values_and_both_origins(files: Files) -> None:
    files.write(
        {**EMBEDDED, "plugin.namespace": "a"},
        {**EMBEDDED, "plugin.connect.timeout.ms": 5000},
    )
    result = files.diff()
    assert result.exit_code == Status.REFUSED
    assert result.stdout == (
        f"plugin.namespace\ta\tkip30\t{LEFT}:3\tdefault\n"
        f"plugin.connect.timeout.ms\t10000\t5000\tdefault\t{RIGHT}:3\n"
    )
    titles = files.diff("-o", "tsv").stdout.splitlines()[0]
    assert titles == "SETTING\tLEFT\tRIGHT\tLEFT FROM\tRIGHT FROM"


def test_a_difference_has_the_documented_fields(files: Files) -> None:
    files.write(EMBEDDED, {**EMBEDDED, "plugin.connect.timeout.ms": 5000})
    result = files.diff("--json")
    assert result.exit_code == Status.REFUSED
    (record,) = files.shell.json_of(result.stdout)
    expect_fields(record, SCHEMA["config --diff"])
    assert (record["left"], record["right"]) == (10_000, 5000)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"plugin.connect.timeout.ms": "10000"}, {}),
        ({"plugin.connect.timeout.ms": " 010000"}, {"plugin.connect.timeout.ms": "10000"}),
        ({"plugin.session.timeout.ms": "10000"}, {"plugin.lease.margin.ms": "1000"}),
        (
            {"plugin.session.timeout.ms": "2000"},
            {
                "plugin.session.timeout.ms": "2000",
                "plugin.operation.timeout.ms": "2000",
                "plugin.lease.margin.ms": "200",
            },
        ),
        ({"plugin.additional.jars": "/"}, {"plugin.additional.paths": "/"}),
        ({"plugin.additional.paths": ""}, {}),
        ({"plugin.etcd.endpoints": "of another store"}, {}),
        ({"plugin.namespace": "kip30"}, {"plugin.namespace": "\\u006b\\\n  ip30"}),
    ],
    ids=str,
)
def test_other_words_for_the_same_are_no_difference(
    files: Files, left: Mapping[str, object], right: Mapping[str, object]
) -> None:
    files.write({**EMBEDDED, **left}, {**EMBEDDED, **right})
    assert (files.diff().output, files.diff().exit_code) == ("", Status.OK)


def test_settings_that_follow_from_another_differ_too(files: Files) -> None:
    files.write(EMBEDDED, {**EMBEDDED, "plugin.session.timeout.ms": "2000"})
    assert files.rows() == {
        "plugin.session.timeout.ms": ["10000", "2000", "default", f"{RIGHT}:3"],
        "plugin.operation.timeout.ms": ["5000", "2000", "default", "default"],
        "plugin.lease.margin.ms": ["1000", "200", "default", "default"],
    }


def test_a_relative_path_begins_at_the_folder_of_its_file(files: Files) -> None:
    folder = files.shell.folder
    (folder / "etc").mkdir()
    files.write(settings := {**EMBEDDED, "plugin.embedded.directory": "store"}, settings)
    (folder / "etc" / RIGHT).write_text((folder / RIGHT).read_text())
    assert files.diff().exit_code == Status.OK
    result = files.shell("config", "--diff", LEFT, f"etc/{RIGHT}")
    assert result.stdout.split("\t")[1:3] == [f"{folder}/store", f"{folder}/etc/store"]


def test_a_reference_to_a_relative_file_begins_there_too(vaults: Files) -> None:
    folder = vaults.shell.folder
    (folder / "etc").mkdir()
    settings = {**vault(vaults), "plugin.vault.password": "${file:secret}"}
    vaults.write(settings, settings)
    (folder / "etc" / RIGHT).write_text((folder / RIGHT).read_text())
    assert vaults.diff("--load-plugins").exit_code == Status.OK
    result = vaults.shell("config", "--diff", LEFT, f"etc/{RIGHT}", "--load-plugins")
    assert result.stdout == f"plugin.vault.password\t***\t***\t{LEFT}:4\tetc/{RIGHT}:4\n"


def test_each_file_has_the_settings_of_its_own_store(vaults: Files) -> None:
    vaults.write(EMBEDDED, vault(vaults))
    rows = vaults.rows("--load-plugins")
    assert rows["plugin.backend"][:2] == ["embedded", "vault"]
    assert rows["plugin.embedded.directory"] == ["/store", "-", f"{LEFT}:2", "-"]
    assert rows["plugin.vault.address"] == ["-", "here", "-", f"{RIGHT}:3"]
    assert "plugin.vault.password" not in rows
    (record,) = (
        one
        for one in vaults.shell.json_of(vaults.diff("--json", "--load-plugins").stdout)
        if one["key"] == "plugin.vault.address"
    )
    expect_fields(record, SCHEMA["config --diff"])
    assert (record["left"], record["left_origin"]) == (None, None)


def test_a_required_setting_that_is_missing_is_unset(vaults: Files) -> None:
    left = vault(vaults)
    del left["plugin.vault.address"]
    vaults.write(left, vault(vaults))
    assert vaults.rows("--load-plugins") == {
        "plugin.vault.address": ["-", "here", "default", f"{RIGHT}:3"]
    }


@pytest.mark.parametrize(
    ("left", "right", "shown"),
    [
        (SECRET, SECRET, None),
        (SECRET, "other", ["***", "***"]),
        (SECRET, None, ["***", "-"]),
        (SECRET, "${env:KIP30_NOT_SET}", ["***", "***"]),
        ("${env:KIP30_NOT_SET}", "${env:KIP30_NOT_SET}", None),
        ("${file:/not/there}", "${file:/not/there}", None),
        ("${file:/not/there}", "${file:/nor/there}", ["***", "***"]),
    ],
)
@pytest.mark.parametrize("key", ["plugin.vault.password", "vault.secret"])
def test_a_secret_is_only_equal_or_not(
    vaults: Files, key: str, left: str, right: str | None, shown: list[str] | None
) -> None:
    values = vault(vaults)
    vaults.write(
        {**values, "plugin.vault.password": left},
        values if right is None else {**values, key: right},
    )
    for words in (("--load-plugins",), ("--load-plugins", "-o", "yaml")):
        result = vaults.diff(*words)
        assert result.exit_code == (Status.OK if shown is None else Status.REFUSED)
        assert SECRET not in result.output
    rows = vaults.rows("--load-plugins")
    assert rows.get("plugin.vault.password", [])[:2] == (shown or [])


def test_a_plugin_is_not_run_and_its_settings_are_not_shown(vaults: Files) -> None:
    left, right = vault(vaults), vault(vaults, address="there")
    key = "plugin.vault.password"
    vaults.write({**left, key: SECRET}, {**right, key: "other"})
    words = ("config", "--diff", LEFT, RIGHT)
    result = vaults.shell.finish(*words)
    assert result.returncode == Status.REFUSED
    assert [line.split("\t")[:3] for line in result.stdout.decode().splitlines()] == [
        ["plugin.vault.address", "***", "***"],
        [key, "***", "***"],
    ]
    assert result.stderr.count(b"give `--load-plugins` to run that code") == 2
    assert not (vaults.shell.folder / "loaded").exists()
    vaults.shell.finish(*words, "--load-plugins")
    assert (vaults.shell.folder / "loaded").exists()


def test_a_timeout_out_of_the_environment_is_compared_as_it_is_written(files: Files) -> None:
    named = {**EMBEDDED, "plugin.session.timeout.ms": "${env:KIP30_NOT_SET}"}
    files.write(named, {**named, "plugin.operation.timeout.ms": "60000"})
    assert files.rows()["plugin.operation.timeout.ms"][1:] == ["60000", "default", f"{RIGHT}:4"]
    files.write(named, EMBEDDED)
    assert files.rows()["plugin.session.timeout.ms"][:2] == ["***", "10000"]


def test_no_store_is_opened_and_no_other_file_read(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = files.shell.folder / "made"
    settings = {**EMBEDDED, "plugin.embedded.directory": directory}
    files.write(settings, {**settings, "plugin.namespace": "${env:KIP30_NOT_SET}"})
    monkeypatch.setenv("KIP30_CONFIG", "/not/there")
    assert list(files.rows()) == ["plugin.namespace"]
    assert not directory.exists()


@pytest.mark.parametrize(
    ("right", "complaint"),
    [
        (
            {"plugin.sesion.timeout.ms": "1"},
            f"sesion.timeout.ms ({RIGHT}:3) is not a setting",
        ),
        ({"plugin.connect.timeout.ms": "10s"}, f"({RIGHT}:3): not a whole number"),
        (
            {"plugin.operation.timeout.ms": "60000"},
            f"{RIGHT}: plugin.operation.timeout.ms is ",
        ),
        ({"plugin.backend": "none"}, f"{RIGHT}: no backend 'none' is installed"),
    ],
)
def test_a_mistake_is_an_error_that_names_the_file(
    files: Files, right: Mapping[str, object], complaint: str
) -> None:
    files.write(EMBEDDED, {**EMBEDDED, **right})
    result = files.diff()
    assert (result.exit_code, result.stdout) == (Status.USAGE, "")
    assert complaint in result.stderr


def test_two_names_of_a_setting_with_different_values_are_refused(vaults: Files) -> None:
    both = {**vault(vaults), "plugin.vault.password": SECRET, "vault.secret": "other"}
    vaults.write(vault(vaults), both)
    result = vaults.diff("--load-plugins")
    assert result.exit_code == Status.USAGE
    assert f"{RIGHT}: plugin.vault.password and vault.secret mean the same" in result.stderr
    assert SECRET not in result.output


def test_a_further_file_counts(files: Files) -> None:
    (files.shell.folder / "further").write_text("plugin.namespace = a\n")
    files.write(EMBEDDED, {**EMBEDDED, "plugin.configuration.file": "further"})
    assert files.rows() == {"plugin.namespace": ["kip30", "a", "default", "further:1"]}


def test_a_file_that_is_missing_is_named(files: Files) -> None:
    files.write(EMBEDDED, EMBEDDED)
    result = files.shell("config", "--diff", LEFT, "nowhere")
    assert result.exit_code == Status.USAGE
    assert "nowhere: No such file" in result.stderr


@pytest.mark.parametrize("words", [("--diff", LEFT, ""), ("--diff", "", LEFT), ("--check", "")])
def test_an_empty_name_is_no_file(files: Files, words: tuple[str, ...]) -> None:
    files.write(EMBEDDED, EMBEDDED)
    result = files.shell("config", *words)
    assert result.exit_code == Status.USAGE
    assert f"'{words[0]}': the name of the file is empty" in result.stderr


def test_a_pipe_without_a_writer_is_not_waited_for(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_read, "_WRITER_SECONDS", 0.1)
    files.write(EMBEDDED, EMBEDDED)
    pipe = files.shell.folder / "pipe"
    os.mkfifo(pipe)
    result = files.shell("config", "--diff", LEFT, "pipe")
    assert result.exit_code == Status.USAGE
    assert "pipe: it is a pipe, and no program has opened it to write" in result.stderr


def test_a_writer_of_a_pipe_may_take_its_time(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(safe_read, "_WRITER_SECONDS", 0.1)
    files.write(EMBEDDED, EMBEDDED)
    pipe = files.shell.folder / "pipe"
    os.mkfifo(pipe)
    text = (files.shell.folder / RIGHT).read_bytes()
    silent = threading.Event()
    begun = safe_read._begun

    def wait(descriptor: int) -> bytes:
        try:
            return begun(descriptor)
        finally:
            silent.set()

    monkeypatch.setattr(safe_read, "_begun", wait)

    def write() -> None:
        with pipe.open("wb", buffering=0) as writer:  # once there is a reader
            assert silent.wait(PATIENCE_SECONDS * time_scale())
            writer.write(text)

    writing = threading.Thread(target=write)
    writing.start()
    result = files.shell("config", "--diff", LEFT, "pipe")
    writing.join()
    assert (result.exit_code, result.output) == (Status.OK, "")


def test_both_files_may_be_pipes(files: Files) -> None:
    files.write(EMBEDDED, {**EMBEDDED, "plugin.namespace": "a"})
    reading = [os.open(files.shell.folder / name, os.O_RDONLY) for name in (LEFT, RIGHT)]
    paths = [str(Path("/dev/fd") / str(one)) for one in reading]
    result = files.shell.finish("config", "--diff", *paths, pass_fds=reading)
    for one in reading:
        os.close(one)
    assert result.returncode == Status.REFUSED
    assert result.stdout.startswith(b"plugin.namespace\tkip30\ta\t")


@pytest.mark.parametrize(
    "words",
    [
        ("--config", LEFT),
        ("--backend", "embedded"),
        ("--set", "plugin.namespace=a"),
        ("--effective",),
        ("--ddl",),
        ("--check", LEFT),
    ],
    ids=" ".join,
)
def test_other_sources_and_other_tasks_are_refused(files: Files, words: tuple[str, ...]) -> None:
    files.write(EMBEDDED, EMBEDDED)
    assert files.diff(*words).exit_code == Status.USAGE
    if words[0] in {"--config", "--backend", "--set"}:
        before = files.shell(*words, "config", "--diff", LEFT, RIGHT)
        assert before.exit_code == Status.USAGE
        assert "leave out" in before.stderr


def test_a_value_cannot_steer_the_terminal(files: Files) -> None:
    files.write(EMBEDDED, {**EMBEDDED, "plugin.namespace": "a\\u001b[2J\\tb"})
    assert files.rows()["plugin.namespace"][1] == "a\\x1b[2J\\tb"
