"""A run goes on with the stores that it has read and written to, and with no other ones."""

import shutil
from pathlib import Path

import pytest

from kip30 import PluginLocator, UsageError
from kip30.driver.scanning import View
from kip30.pipeline.run.directory import RunDirectory, read_manifest
from kip30.pipeline.run.manifest import Digest, Wave
from kip30.pipeline.stores.endpoints import StoreEndpoint, parse_endpoint, target_endpoint
from kip30.pipeline.stores.identity import identity_of, note_target, open_source, place_of
from kip30.pipeline.write.run_leader import drive, drive_fenced

WAVE = Wave(number=0, spans=(0,), attempts=1, digest=Digest(), counts={}, files=(), seconds=0.0)


def configured(folder: Path, directory: str, namespace: str = "") -> StoreEndpoint:
    """Return a target whose properties file is always the same one."""
    (folder / directory).mkdir(mode=0o700, exist_ok=True)
    file = folder / "target.properties"
    lines = ["plugin.backend=embedded", f"plugin.embedded.directory={folder / directory}"]
    file.write_text("\n".join([*lines, f"plugin.namespace={namespace}" if namespace else ""]))
    return target_endpoint(parse_endpoint(str(file)))


def run_in(folder: Path, *, resume: bool = True) -> RunDirectory:
    return RunDirectory(folder / "run", "job", {}, resume=resume)


@pytest.fixture
def begun(tmp_path: Path) -> str:
    """Begin a run that has written a wave to the store ``one``; return that store's identity."""
    with run_in(tmp_path, resume=False) as directory:
        note_target(directory, configured(tmp_path, "one"))
        directory.manifest.waves = [WAVE]
        directory.save()
    return read_manifest(tmp_path / "run").target


def test_the_same_store_is_gone_on_with(tmp_path: Path, begun: str) -> None:
    target = configured(tmp_path, "one")
    with PluginLocator().startup(target.config.properties()) as client:
        client.storage().put("n/k", "v")
    with run_in(tmp_path) as directory:
        note_target(directory, target)
    assert begun
    assert read_manifest(tmp_path / "run").target == begun
    assert read_manifest(tmp_path / "run").waves == [WAVE]


@pytest.mark.parametrize("other", ["two", "namespace", "made anew"])
def test_another_store_is_refused_until_it_is_accepted(
    tmp_path: Path, begun: str, other: str
) -> None:
    if other == "made anew":
        shutil.rmtree(tmp_path / "one")
    directory, namespace = ("two", "") if other == "two" else ("one", "other")
    target = configured(tmp_path, directory, "" if other == "made anew" else namespace)
    now = identity_of(target.config)
    assert now != begun
    for accepted in ((), (begun,)):
        with run_in(tmp_path) as run, pytest.raises(UsageError, match="is not the store that"):
            note_target(run, target, accepted)
    kept = read_manifest(tmp_path / "run")
    assert (kept.target, kept.waves) == (begun, [WAVE])
    with run_in(tmp_path) as run:
        note_target(run, target, ["elsewhere", now])
    changed = read_manifest(tmp_path / "run")
    assert (changed.target, changed.waves) == (now, [])


def test_a_run_of_an_older_kip30_notes_its_target_when_it_is_resumed(
    tmp_path: Path, begun: str
) -> None:
    with run_in(tmp_path) as directory:
        directory.manifest.target = ""
        directory.save()
        note_target(directory, configured(tmp_path, "one"))
    assert read_manifest(tmp_path / "run").target == begun
    assert read_manifest(tmp_path / "run").waves == [WAVE]


@pytest.mark.parametrize("fenced", [True, False])
def test_a_run_writes_nothing_to_a_store_that_its_file_names_since(
    tmp_path: Path, begun: str, *, fenced: bool
) -> None:
    """A driver stands for election there, which is a write, too."""
    target = configured(tmp_path, "two")
    other = identity_of(target.config)
    with (
        pytest.raises(UsageError, match="the target is not the store that"),
        drive_fenced(target.config, "r", begun, fence=fenced),
    ):
        pytest.fail("it was opened")
    with PluginLocator().startup(target.config.properties()) as client:
        assert client.leader_election("pipeline/r").get_leader() is None
    with drive(target.config, "r", other) as leader:
        assert leader.fence().epoch == 1


@pytest.mark.parametrize("namespace", ["other", ""])
def test_a_source_is_opened_in_the_namespace_that_was_noted(tmp_path: Path, namespace: str) -> None:
    noted = place_of(configured(tmp_path, "one").config.resolve())
    config = configured(tmp_path, "one", namespace).config
    with PluginLocator().startup(config.properties()) as client:
        client.storage().put("n/k", "v")
    view = View(scratch=tmp_path)
    if namespace:
        with pytest.raises(UsageError, match="the namespace 'kip30', and now it is 'other'"):
            open_source(config, view, noted)
        noted = place_of(config.resolve())
    with open_source(config, view, noted) as store:
        at = store.position()
        assert [
            row.key
            for span in store.plan(at, 9)
            for page in store.scan(span, at)
            for row in page.rows
        ] == [b"n/k"]
