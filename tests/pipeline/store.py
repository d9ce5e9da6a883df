"""Stores for tests of the pipeline: their properties files and their keys."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kip30 import PluginLocator
from kip30.codecs import BYTES


def write_properties(file: Path, settings: Mapping[str, object]) -> Path:
    """Write a properties file."""
    file.write_text("".join(f"{key} = {value}\n" for key, value in settings.items()))
    return file


def fill(properties: Path, keys: int, namespace: str = "ns") -> None:
    """Put *keys* keys into a store."""
    with PluginLocator().startup(properties) as locator:
        values = {f"{namespace}/k{n:04}": f"value {n}".encode() for n in range(keys)}
        locator.storage(BYTES).put_many(values)


def embedded(folder: Path, keys: int) -> Path:
    """Return the properties file of a store of the test's own."""
    settings = {"plugin.backend": "embedded", "plugin.embedded.directory": folder / "store"}
    file = write_properties(folder / "kip30.properties", settings)
    fill(file, keys)
    return file


def lines(text: str) -> list[dict[str, Any]]:
    """Return the JSON of *text*, an object a line."""
    return [json.loads(line) for line in text.splitlines()]
