"""Modules that commands import by name, when they are needed, exist under that name.

Jobs of the pipeline run only in the environment that has Spark; a wrong name shows here first.
"""

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from kip30 import cli

_PACKAGES = {"job": "kip30.pipeline", "job_module": "kip30.pipeline", "part": "kip30_conformance"}
"""The functions that import a module of which the caller names the last part, and the package."""


def _named_modules() -> Iterator[str]:
    for file in sorted(Path(cli.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(
                    func=ast.Name(id=function) | ast.Attribute(attr=function),
                    args=[ast.Constant(value=str(name)), *_],
                ) if function in _PACKAGES:
                    yield f"{_PACKAGES[function]}.{name}"
                case ast.Call(
                    func=ast.Name(id="import_module"), args=[ast.Constant(value=str(name)), *_]
                ):
                    yield name


MODULES = sorted(set(_named_modules()))


def test_the_names_are_found() -> None:
    assert {"kip30.pipeline.compare.diff", "kip30_conformance.storm"} <= set(MODULES)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imported_by_name_exists(name: str) -> None:
    assert find_spec(name) is not None
