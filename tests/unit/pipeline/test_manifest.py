"""P38: manifests are read as they were written, or refused."""

import json
from typing import Any

import pytest

from kip30 import StoreError
from kip30.pipeline.run.manifest import FORMAT, DataFile, Digest, Manifest, Wave, with_checksum


def wave(number: int, *spans: int, rows: int = 2, **counts: int) -> Wave:
    return Wave(
        number=number,
        spans=spans,
        attempts=1,
        digest=Digest(rows, -(2**70) * number, number - 5),
        counts=counts,
        files=(DataFile(f"data/wave={number}/part ü.parquet", 10, "0a"),),
        seconds=0.5,
    )


def manifest() -> Manifest:
    return Manifest(
        job="snapshot",
        run="r",
        arguments={"source": "ü\udcff", "span_rows": 7, "none": None},
        created=1.5,
        versions={"kip30": "1"},
        source={"position": ["a", "1"], "epochs": {"s": 2**60}},
        planned=5,
        waves=[wave(0, 3, 1, rejected=1), wave(4, 0, rejected=2, moving=1)],
        counts={"rows": 4},
        done=True,
    )


def fields_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    del found["format"], found["checksum"]
    return found


def changed(**fields: Any) -> str:
    return with_checksum(fields_of(manifest().to_json()) | fields)


def test_it_is_read_as_it_was_written() -> None:
    text = manifest().to_json()
    assert Manifest.of_json(text, "m") == manifest()
    assert Manifest.of_json(text, "m").to_json() == text
    assert json.loads(text)["format"] == FORMAT


def test_totals() -> None:
    found = manifest()
    assert found.digest == Digest(4, -(2**72), -5 ^ -1)
    assert found.finished_spans == {0, 1, 3}
    assert found.next_wave == 5
    assert (found.total("rejected"), found.total("moving"), found.total("none")) == (3, 1, 0)
    found.waves = []
    assert (found.digest, found.next_wave, found.finished_spans) == (Digest(), 0, frozenset())


@pytest.mark.parametrize("number", [FORMAT - 1, FORMAT + 1])
def test_another_format(number: int) -> None:
    with pytest.raises(StoreError) as caught:
        Manifest.of_json(json.dumps({"format": number, "anything": 1}), "/r/manifest.json")
    assert str(caught.value) == (
        f"/r/manifest.json has the format {number}: this kip30 reads format {FORMAT}; read it with"
        " the kip30 that wrote it, or begin another run"
    )


@pytest.mark.parametrize("length", [0, 1, 30, -1])
def test_a_shortened_manifest(length: int) -> None:
    with pytest.raises(StoreError, match="m is damaged, or not a manifest"):
        Manifest.of_json(manifest().to_json()[:length], "m")


def test_any_change_of_a_manifest_is_found() -> None:
    """A digit or a letter that became another one would be read as it is."""
    text = manifest().to_json().encode()
    for place in range(len(text)):
        damaged = text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]
        with pytest.raises((UnicodeDecodeError, StoreError)):
            Manifest.of_json(damaged.decode(), "m")


@pytest.mark.parametrize(
    "text", ["null", "[]", '"format"', "1", f'{{"format": {FORMAT}}}', "{}", "[" * 100_000]
)
def test_no_manifest(text: str) -> None:
    with pytest.raises(StoreError, match="m is damaged, or not a manifest"):
        Manifest.of_json(text, "m")


@pytest.mark.parametrize(
    "fields",
    [
        {"unknown": 1},
        {"done": "false"},
        {"done": 0},
        {"planned": "5"},
        {"planned": True},
        {"source": None},
        {"arguments": []},
        {"waves": {}},
        {"waves": [1]},
        {"waves": [{"number": 0}]},
        {"counts": None},
    ],
)
def test_fields_that_would_be_misread(fields: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match="m is damaged, or not a manifest"):
        Manifest.of_json(changed(**fields), "m")


@pytest.mark.parametrize("part", ["digest", "files", "wave"])
def test_unknown_fields_of_a_wave(part: str) -> None:
    found = fields_of(manifest().to_json())
    one = found["waves"][0]
    {"digest": one["digest"], "files": one["files"][0], "wave": one}[part]["unknown"] = 1
    with pytest.raises(StoreError, match="m is damaged, or not a manifest"):
        Manifest.of_json(with_checksum(found), "m")


@pytest.mark.parametrize("name", ["/etc/passwd", "../other/x.parquet", "data/../../x.parquet"])
def test_files_elsewhere(name: str) -> None:
    """A manifest may come from another person."""
    found = fields_of(manifest().to_json())
    found["waves"][0]["files"][0]["name"] = name
    with pytest.raises(StoreError, match="outside of the folder"):
        Manifest.of_json(with_checksum(found), "m")
