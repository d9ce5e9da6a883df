"""The folder of a run: whose it is, what survives a crash, who may work in it."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30.errors import StoreError, UsageError
from kip30.pipeline.manifest import DataFile, Digest, Manifest, Wave
from kip30.pipeline.run_directory import (
    RunDirectory,
    check_files,
    check_usable,
    read_manifest,
    write_whole,
)
from kip30.scanning import Span

NUMBERS = st.integers(-(2**70), 2**70)


def test_a_new_run(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "a" / "b", "snapshot", {"source": "x"}) as run:
        assert read_manifest(run.path) == run.manifest
        assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
        modes = {stat.S_IMODE(one.stat().st_mode) for one in run.path.iterdir()}
        assert modes == {0o600}
        assert run.manifest.planned is None
        assert not run.manifest.done


def test_ids_grow_with_time(tmp_path: Path) -> None:
    ids = [RunDirectory(tmp_path / str(n), "snapshot", {}).manifest.run for n in range(3)]
    assert len(set(ids)) == 3
    assert [one[14] for one in ids] == ["7"] * 3  # the version, RFC 9562
    assert sorted(one[:13] for one in ids) == [one[:13] for one in ids]


def _make(path: Path, **changes: Any) -> None:
    with RunDirectory(path, "snapshot", {"source": "x", "rows": 1}) as run:
        for name, value in changes.items():
            setattr(run.manifest, name, value)
        run.save()


def test_a_used_folder_is_refused(tmp_path: Path) -> None:
    _make(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    (tmp_path / "file").touch()
    for name, told in (("run", "--resume goes on"), ("other", "no run"), ("file", "no run")):
        for attempt in (RunDirectory, check_usable):
            with pytest.raises(UsageError, match=told):
                attempt(tmp_path / name, "snapshot", {})
    _make(tmp_path / "done", done=True)
    with pytest.raises(UsageError, match="which is done"):
        RunDirectory(tmp_path / "done", "snapshot", {})


@pytest.mark.parametrize(
    ("name", "job", "arguments", "told"),
    [
        ("nothing", "snapshot", {}, "leave out --resume"),
        ("run", "diff", {"source": "x", "rows": 1}, "a run of snapshot"),
        ("run", "snapshot", {"source": "x", "rows": 2}, "rows was 1 and is 2"),
        ("run", "snapshot", {"rows": 1}, "source was 'x' and is None"),
        ("done", "snapshot", {"source": "x", "rows": 1}, "nothing to resume"),
    ],
)
def test_what_cannot_be_resumed(
    tmp_path: Path, name: str, job: str, arguments: dict[str, object], told: str
) -> None:
    _make(tmp_path / "run")
    _make(tmp_path / "done", done=True)
    for attempt in (RunDirectory, check_usable):
        with pytest.raises(UsageError, match=told):
            attempt(tmp_path / name, job, arguments, resume=True)
    _make(tmp_path / "nothing")  # a refusal leaves no lock and no folder behind


def test_a_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    spans = [Span(bytes([0, 255, 10]), 3), Span(b"", 0)]
    with RunDirectory(Path("run"), "snapshot", {"source": Path("x").name}) as run:
        run.save_plan(spans)
        monkeypatch.chdir("/")
        run.save()  # the folder is the one that was named
        first = run.manifest
    with RunDirectory(tmp_path / "run", "snapshot", {"source": "x"}, resume=True) as run:
        assert run.manifest == first
        assert run.plan() == spans


HOLDER = """
import sys
from pathlib import Path
from kip30.pipeline.run_directory import RunDirectory
RunDirectory(Path(sys.argv[1]), "snapshot", {})
print("locked", flush=True)
sys.stdin.read()
"""


def test_one_process_works_in_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(UsageError, match=rf"its pid is {holder.pid}$"):
            RunDirectory(path, "snapshot", {}, resume=True)
        holder.kill()
    RunDirectory(path, "snapshot", {}, resume=True).close()


def test_a_forked_child_does_not_release_the_lock(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "run", "snapshot", {}):
        child = os.fork()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(UsageError, match="another process"):
            RunDirectory(tmp_path / "run", "snapshot", {}, resume=True)


def test_a_crash_leaves_the_old_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "manifest.json"
    write_whole(file, "old")

    def crash(*_words: object) -> None:
        raise OSError("crash")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", crash)
        with pytest.raises(OSError, match="crash"):
            write_whole(file, "new")
    assert file.read_text() == "old"
    write_whole(file, "newer")
    assert file.read_text() == "newer"


def test_files_that_are_missing_or_short(tmp_path: Path) -> None:
    manifest = _manifest()
    with pytest.raises(StoreError, match="of wave 4, is missing"):
        check_files(tmp_path, manifest)
    (tmp_path / "a").write_bytes(b"1234")
    with pytest.raises(StoreError, match="of wave 4, has 4 bytes instead of 5"):
        check_files(tmp_path, manifest)
    (tmp_path / "a").write_bytes(b"12345")
    check_files(tmp_path, manifest)


def _manifest(total: int = 0) -> Manifest:
    wave = Wave(
        number=4,
        spans=(1, 2),
        attempts=1,
        digest=Digest(3, total, -total),
        counts={"moving": 1},
        files=(DataFile("a", 5),),
        seconds=0.5,
    )
    return Manifest(
        job="snapshot",
        run="r",
        arguments={"é": None},
        created=1.5,
        versions={},
        source={"position": ["a", "b"]},
        planned=3,
        waves=[wave],
        counts={"rows": 3},
        done=True,
    )


@given(NUMBERS)
def test_a_manifest_survives_its_file(total: int) -> None:
    manifest = _manifest(total)
    assert Manifest.of_json(manifest.to_json(), "f") == manifest


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": 2}, "the format 2"),
        ({"unknown": 1}, "damaged"),
        ({"waves": [{"number": 1}]}, "damaged"),
        ({"waves": None}, "damaged"),
        (None, "damaged"),
    ],
)
def test_what_is_no_manifest_is_refused(change: dict[str, object] | None, told: str) -> None:
    """P38."""
    found = json.loads(_manifest().to_json())
    text = json.dumps(found | change) if change else "{"
    with pytest.raises(StoreError, match=rf"RUN/manifest.json .*{told}"):
        Manifest.of_json(text, "RUN/manifest.json")


def test_digests_add_up() -> None:
    parts = [Digest(1, 5, 3), Digest(2, -9, 6)]
    assert parts[0] + parts[1] == parts[1] + parts[0] == Digest(3, -4, 5)
