"""The folder of a run: for one process at a time, safe against crashes and against readers."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socketpair
from typing import Any

import pytest

from kip30 import StoreError, UsageError
from kip30.driver.scanning import Span
from kip30.pipeline.run import directory as run_directory
from kip30.pipeline.run.checksums import checksum_of
from kip30.pipeline.run.directory import (
    RunDirectory,
    check_files,
    read_manifest,
    verify_files,
    write_whole,
)
from kip30.pipeline.run.manifest import MANIFEST_NAME, DataFile, Digest, Wave
from tests.unit.children import exit_status, run_in_child

ARGUMENTS = {"source": "a", "rows": 7, "of": ["x", "y"]}

_HOLD = """
import sys, time
from pathlib import Path
from kip30.pipeline.run.directory import RunDirectory
with RunDirectory(Path(sys.argv[1]), "job", {}, resume=len(sys.argv) > 2):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "a" / "run"


def begin(folder: Path, job: str = "job", *, resume: bool = False, **more: Any) -> RunDirectory:
    return RunDirectory(folder, job, {**ARGUMENTS, **more}, resume=resume)


@contextmanager
def holder(folder: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """Yield a process that is in *folder*."""
    command = [sys.executable, "-c", _HOLD, str(folder), *words]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def wave_of(run: RunDirectory, number: int, content: bytes = b"12345") -> Wave:
    """Write a file, and return the wave that has it."""
    folder = run.wave_folder("data", number)
    folder.mkdir()
    (folder / "part.parquet").write_bytes(content)
    files = run.files_in(folder)
    return Wave(
        number=number,
        spans=(number,),
        attempts=1,
        digest=Digest(),
        counts={},
        files=files,
        seconds=0,
    )


def test_a_run_begins_and_goes_on(folder: Path) -> None:
    with begin(folder) as run:
        run.save_plan([Span(b"\0\xff", 3), Span(b"", 0)])
        run.manifest.source = {"x": "ü"}
        run.save()
        manifest = run.manifest
    with begin(folder, resume=True) as again:
        assert again.manifest == manifest
        assert again.plan() == [Span(b"\0\xff", 3), Span(b"", 0)]
    assert manifest.versions.keys() == {"kip30", "spark", "python"}


def test_runs_are_named_in_the_order_of_time(tmp_path: Path) -> None:
    names: list[str] = []
    for number in range(20):
        with begin(tmp_path / str(number)) as run:
            names.append(run.manifest.run)
    assert len(set(names)) == 20
    assert [name[:13] for name in names] == sorted(name[:13] for name in names)
    assert {name[14] for name in names} == {"7"}
    assert {name[19] for name in names} <= set("89ab")


def test_no_one_else_sees_it(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o755)
    old = os.umask(0)
    try:
        with begin(folder) as run:
            run.save_plan([Span(b"t", 1)])
            run.wave_folder("data", 0)
    finally:
        os.umask(old)
    assert (mode(folder), mode(folder / "data")) == (0o700, 0o700)
    assert {mode(one) for one in folder.iterdir() if one.is_file()} == {0o600}


def test_a_relative_folder_stays_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with begin(Path("run")) as run:
        monkeypatch.chdir("/")
        run.save()
    assert run.path == tmp_path / "run"


def test_a_folder_with_a_run(folder: Path) -> None:
    with begin(folder) as run:
        pass
    with pytest.raises(UsageError) as caught:
        begin(folder)
    assert str(caught.value) == (
        f"{folder} holds the run {run.manifest.run} of job, which is not done: --resume continues"
        " it; or name another folder"
    )


def test_a_run_that_is_done(folder: Path) -> None:
    with begin(folder) as run:
        run.manifest.done = True
        run.save()
    before = (folder / MANIFEST_NAME).read_bytes()
    with pytest.raises(UsageError, match="which is done; or name another"):
        begin(folder)
    with pytest.raises(UsageError, match="is done: there is nothing to resume"):
        begin(folder, resume=True)
    assert (folder / MANIFEST_NAME).read_bytes() == before


def test_other_folders(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="exists and is not a run of kip30: name another folder"):
        begin(tmp_path)
    with pytest.raises(UsageError, match="file cannot be the folder of a run"):
        begin(tmp_path / "file")
    with pytest.raises(UsageError, match="cannot be the folder of a run"):
        begin(tmp_path / "file" / "run")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_nothing_to_resume(folder: Path) -> None:
    with pytest.raises(UsageError, match="holds no run to resume: leave out --resume"):
        begin(folder, resume=True)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("job", "arguments", "message"),
    [
        ("other", {}, "is a run of job: name another folder"),
        ("job", {"rows": 8}, "--resume takes the same arguments: rows was 7 and is 8"),
        ("job", {"of": ["x"]}, "of was ['x', 'y'] and is ['x']"),
        ("job", {"later": 1}, "later was None and is 1"),
    ],
)
def test_other_arguments(folder: Path, job: str, arguments: dict[str, Any], message: str) -> None:
    with begin(folder):
        before = (folder / MANIFEST_NAME).read_bytes()
    with pytest.raises(UsageError) as caught:
        begin(folder, job, resume=True, **arguments)
    assert message in str(caught.value)
    assert (folder / MANIFEST_NAME).read_bytes() == before
    begin(folder, resume=True).close()  # the lock is free


def test_tuples_are_the_same_as_the_lists_that_json_makes(folder: Path) -> None:
    begin(folder, of=("x", "y")).close()
    begin(folder, resume=True).close()


def test_another_process(folder: Path) -> None:
    with holder(folder) as process:
        for resume in (False, True):
            with pytest.raises(UsageError):
                RunDirectory(folder, "job", {}, resume=resume)
        with pytest.raises(UsageError) as caught:
            RunDirectory(folder, "job", {}, resume=True)
        assert str(caught.value) == (f"another process works in {folder}: its pid is {process.pid}")
        process.kill()
        process.wait()
        RunDirectory(folder, "job", {}, resume=True).close()


def test_the_same_process(folder: Path) -> None:
    with begin(folder), pytest.raises(UsageError, match=f"its pid is {os.getpid()}"):
        begin(folder, resume=True)


def test_another_process_that_began_and_ended_meanwhile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the first look at the folder and its lock."""
    enter = run_directory._entered

    def late(path: Path, shown: Path) -> int:
        monkeypatch.undo()
        with begin(folder) as other:
            other.manifest.done = True
            other.save()
        return enter(path, shown)

    monkeypatch.setattr(run_directory, "_entered", late)
    with pytest.raises(UsageError, match="which is done"):
        begin(folder)
    assert read_manifest(folder).done


def test_the_lock_is_released_after_an_error(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), begin(folder):
        raise ZeroDivisionError
    begin(folder, resume=True).close()
    (folder / MANIFEST_NAME).write_text("{")
    for _ in range(2):
        with pytest.raises(StoreError, match="damaged"):
            begin(folder, resume=True)


def test_a_child_leaves_the_lock_to_its_parent(folder: Path) -> None:
    run = begin(folder)

    def close_it() -> bool:
        run.close()
        return True

    assert run_in_child(close_it) == 0
    with pytest.raises(UsageError, match="another process"):
        begin(folder, resume=True)
    run.close()


def test_a_child_does_not_keep_the_lock(folder: Path) -> None:
    run = begin(folder)
    mine, its = socketpair()
    child = os.fork()
    if not child:
        mine.close()
        its.send(b"1")
        its.recv(1)
        os._exit(0)
    its.close()
    mine.recv(1)
    run.abandon()  # as if this process were killed
    try:
        begin(folder, resume=True).close()
    finally:
        mine.close()
        assert exit_status(child) == 0


def test_a_crash_before_the_first_manifest(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "lock").write_text("1\n")
    (folder / f"{MANIFEST_NAME}.new").write_text("{")
    with begin(folder) as run:
        assert read_manifest(folder) == run.manifest


def test_a_crash_before_a_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    write_whole(file, "old")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            write_whole(file, "new")
    assert file.read_text() == "old"
    write_whole(file, "ü")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_the_content_is_on_the_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(descriptor: int) -> None:
        done.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        fsync(descriptor)

    def note_replace(self: Path, target: Path) -> Path:
        done.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    write_whole(tmp_path / "file", "new")
    assert done == [str(tmp_path / "file.new"), "rename", str(tmp_path)]


@pytest.mark.parametrize(
    "damage", ["", '["YQ==", 1]\n', '["YQ==", 1]\n["Yg==", 2]\n', "{", "removed"]
)
def test_a_damaged_plan(folder: Path, damage: str) -> None:
    with begin(folder) as run:
        run.save_plan([Span(b"a", 1), Span(b"b", 1)])
        plan = folder / "plan.jsonl"
        plan.unlink() if damage == "removed" else plan.write_text(damage)
        with pytest.raises(StoreError, match=r"plan\.jsonl"):
            run.plan()


def test_files_of_former_attempts_are_removed(folder: Path) -> None:
    with begin(folder) as run:
        wave_of(run, 3)
        kept = run.wave_folder("data", 4)
        assert kept == folder / "data" / "wave=4"
        assert run.wave_folder("data", 3) == folder / "data" / "wave=3"
        assert not (folder / "data" / "wave=3").exists()


def test_only_finished_files_are_listed(folder: Path) -> None:
    with begin(folder) as run:
        wave = wave_of(run, 0)
        (folder / "data/wave=0/_temporary").mkdir()
        (folder / "data/wave=0/_temporary/x.parquet").write_bytes(b"1")
        (folder / "data/wave=0/_SUCCESS").write_bytes(b"")
        assert run.files_in(folder / "data/wave=0") == wave.files
        file = folder / "data/wave=0/part.parquet"
        assert wave.files == (DataFile("data/wave=0/part.parquet", 5, checksum_of(file)),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "is missing"),
        (b"1", "has 1 bytes instead of 5"),
        (b"12344", "is not as it was written"),
    ],
)
def test_damaged_files(folder: Path, content: bytes | None, message: str) -> None:
    with begin(folder) as run:
        run.manifest.waves = [wave_of(run, 0), wave_of(run, 7)]
        verify_files(folder, run.manifest)
        file = folder / "data/wave=7/part.parquet"
        file.unlink() if content is None else file.write_bytes(content)
        with pytest.raises(StoreError) as caught:
            verify_files(folder, run.manifest)
        assert str(caught.value) == f"{file}, of wave 7, {message}"
        if content is None or len(content) != 5:
            with pytest.raises(StoreError, match=message):
                check_files(folder, run.manifest)
        assert run.drop_damaged_waves() == [str(caught.value)]
        assert [wave.number for wave in run.manifest.waves] == [0]


def test_no_manifest(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(UsageError, match=r"has no manifest\.json: name the folder of a run"):
            read_manifest(folder)
    (tmp_path / MANIFEST_NAME).write_bytes(b"\xff")
    with pytest.raises(StoreError, match="cannot read"):
        read_manifest(tmp_path)


def test_the_manifest_is_json(folder: Path) -> None:
    begin(folder).close()
    assert json.loads((folder / MANIFEST_NAME).read_text())["arguments"] == ARGUMENTS
