"""Endpoints that a job's arguments name."""

from pathlib import Path

import pytest

from kip30 import InvalidNameError, StoreError, UnsupportedError, UsageError
from kip30.driver.scanning import Layout, View
from kip30.pipeline.run.directory import RunDirectory
from kip30.pipeline.run.manifest import MANIFEST_NAME
from kip30.pipeline.stores.config import StoreConfig
from kip30.pipeline.stores.endpoints import (
    SnapshotEndpoint,
    StoreEndpoint,
    parse_endpoint,
    store_endpoint,
    target_endpoint,
)

CHOSEN = StoreConfig(settings=(("plugin.backend", "embedded"),))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "store.properties"
    file.write_text("plugin.backend=embedded\n")
    return file


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """Return the folder of a snapshot of kip30's keys."""
    with RunDirectory(tmp_path / "snapshot", "snapshot", {}) as run:
        run.manifest.source = {"layout": "kip30"}
        run.save()
    return run.path


def test_a_file_is_a_store(file: Path) -> None:
    assert parse_endpoint(str(file)) == StoreEndpoint(
        str(file), StoreConfig(file=file), Layout.KIP30, ""
    )


def test_a_relative_file_stays_the_same_elsewhere(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent)
    found = store_endpoint(parse_endpoint(file.name))
    assert (found.text, found.config.file) == (file.name, file)


def test_a_home(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(file.parent))
    assert store_endpoint(parse_endpoint(f"~/{file.name}")).config.file == file


@pytest.mark.parametrize(
    ("text", "layout", "under"),
    [
        ("-", Layout.KIP30, ""),
        ("-#", Layout.KIP30, ""),
        ("-#a/b", Layout.KIP30, "a/b"),
        ("raw:-", Layout.RAW, ""),
        ("raw:-#/config/", Layout.RAW, "/config/"),
        ("raw:-#a#b", Layout.RAW, "a#b"),
    ],
)
def test_parts_of_the_chosen_store(text: str, layout: Layout, under: str, tmp_path: Path) -> None:
    found = store_endpoint(parse_endpoint(text, CHOSEN))
    assert found == StoreEndpoint(text, CHOSEN, layout, under)
    assert found.view(tmp_path) == View(layout=layout, under=under, scratch=tmp_path)


def test_a_folder_is_a_snapshot(snapshot: Path) -> None:
    assert parse_endpoint(str(snapshot)) == SnapshotEndpoint(str(snapshot), snapshot, "")
    text = f"{snapshot}#a/b"
    assert parse_endpoint(text) == SnapshotEndpoint(text, snapshot, "a/b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' names no file or folder"),
        ("#a", "'#a' names no file or folder"),
        ("raw:", "'raw:' names no file or folder"),
        ("-", "-: no store is chosen: name a properties file"),
        ("{folder}/none", "{folder}/none: there is no file or folder '{folder}/none'"),
        ("{file}#a", "{file}#a: there is no file or folder '{file}'"),
        ("~nobody-of-this-name/x", "there is no file or folder '~nobody-of-this-name/x'"),
        ("x" * 5000, "there is no file or folder"),
        (
            "{folder}",
            "{folder}: the folder has no manifest.json: name the folder of a snapshot, or",
        ),
        (
            "raw:{snapshot}#/a",
            "raw:{snapshot}#/a: a snapshot knows its layout: leave out 'raw:'",
        ),
    ],
)
def test_an_argument_that_names_nothing_is_refused(
    text: str, message: str, tmp_path: Path, snapshot: Path
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    names = {"folder": folder, "file": tmp_path / "none", "snapshot": snapshot}
    with pytest.raises(UsageError) as caught:
        parse_endpoint(text.format(**names))
    assert message.format(**names) in str(caught.value)


@pytest.mark.parametrize("under", ["a/", "x" * 300])
def test_a_part_that_is_no_namespace(under: str, snapshot: Path) -> None:
    for place in ("-", str(snapshot)):
        with pytest.raises(InvalidNameError):
            parse_endpoint(f"{place}#{under}", CHOSEN)


def test_a_part_of_a_raw_snapshot_is_any_path(snapshot: Path) -> None:
    with RunDirectory(snapshot, "snapshot", {}, resume=True) as run:
        run.manifest.source = {"layout": "raw"}
        run.save()
    assert parse_endpoint(f"{snapshot}#/a/").under == "/a/"


def test_a_part_of_a_damaged_snapshot(snapshot: Path) -> None:
    (snapshot / MANIFEST_NAME).write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        parse_endpoint(f"{snapshot}#a")


def test_a_snapshot_is_no_store(snapshot: Path) -> None:
    for wanted in (store_endpoint, target_endpoint):
        with pytest.raises(UsageError) as caught:
            wanted(parse_endpoint(str(snapshot)))
        assert str(caught.value) == (
            f"{snapshot} is a snapshot: name the properties file of a store"
        )


def test_a_raw_endpoint_is_no_target() -> None:
    with pytest.raises(UnsupportedError, match="raw:-: raw endpoints can be read and not written"):
        target_endpoint(parse_endpoint("raw:-", CHOSEN))
    assert target_endpoint(parse_endpoint("-", CHOSEN)).config == CHOSEN
