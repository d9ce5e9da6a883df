"""A mutant of the pipeline: a change of its source text, and a test that fails with it."""

from importlib.util import find_spec
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import NamedTuple


class Edit(NamedTuple):
    """A replacement of text.

    Attributes:
        file: A module, such as ``kip30/pipeline/follow/tail.py``.
        old: The text that it has exactly once.
        new: The text in its place.
    """

    file: str
    old: str
    new: str


class Mutant(NamedTuple):
    """One mistake.

    Attributes:
        node: The test that fails.
        edits: The changes that make the mistake.
    """

    node: str
    edits: tuple[Edit, ...]


def mutant(node: str, *edits: tuple[str, str, str]) -> Mutant:
    """Return a mutant; its *edits* name files below ``kip30/pipeline``, others with the package."""
    return Mutant(node, tuple(Edit(_module(file), old, new) for file, old, new in edits))


def mutated(name: str, edits: tuple[Edit, ...], folder: Path) -> Path:
    """Copy the packages that *edits* are in, and kip30, to *folder*, and change them there."""
    for package in {"kip30", *(edit.file.partition("/")[0] for edit in edits)}:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin).parent
        copytree(source, folder / package, ignore=ignore_patterns("__pycache__"))
    for file, old, new in edits:
        text = (folder / file).read_text()
        found = text.count(old)
        assert found == 1, f"mutant {name} no longer applies: {file} has {found} times {old!r}"
        (folder / file).write_text(text.replace(old, new))
    return folder


def _module(file: str) -> str:
    return file if file.startswith("kip30") else f"kip30/pipeline/{file}"
