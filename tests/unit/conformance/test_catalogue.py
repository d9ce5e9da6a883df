"""Rules that hold for all checks of all suites."""

import ast
import inspect
import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from kip30_conformance import fault_suites, suites
from kip30_conformance.all_suites import SUITES
from kip30_conformance.report.results import case_id
from kip30_conformance.suite import Suite

EMBEDDED = Path(__file__).parents[2] / "conformance" / "test_embedded.py"


def in_modules() -> Iterator[type[Suite]]:
    for wing in (suites, fault_suites):
        for module in pkgutil.iter_modules(wing.__path__, f"{wing.__name__}."):
            for name, value in vars(import_module(module.name)).items():
                if name.endswith("Tests") and value.__module__ == module.name:
                    yield value


CHECKS = [(suite, name) for suite in SUITES for name in vars(suite) if name.startswith("test")]


def test_no_suite_is_forgotten() -> None:
    assert len(SUITES) == len(set(SUITES))
    assert set(SUITES) == set(in_modules())


@pytest.mark.parametrize("suite", SUITES)
def test_each_suite_is_a_subclass_of_suite_and_has_a_docstring(suite: type[Suite]) -> None:
    assert issubclass(suite, Suite)
    assert suite.__doc__


@pytest.mark.parametrize(("suite", "name"), CHECKS)
def test_a_check_has_an_id_and_a_sentence(suite: type[Suite], name: str) -> None:
    assert case_id(name)
    assert (inspect.getdoc(vars(suite)[name]) or "").endswith(".")


def test_the_embedded_store_is_held_to_every_suite() -> None:
    tree = ast.parse(EMBEDDED.read_text())
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    bases = {ast.unparse(base) for node in classes for base in node.bases}
    assert {suite.__name__ for suite in SUITES} <= bases
