"""The mutants of the pipeline fit its source, which changes more often than they are run."""

import re
from pathlib import Path

import pytest

from .mutants.pipeline import MUTANTS, mutated

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_fits_the_source_and_names_a_test(name: str, tmp_path: Path) -> None:
    node, edits = MUTANTS[name]
    mutated(name, edits, tmp_path)
    for edit in edits:
        compile((tmp_path / edit.file).read_text(), edit.file, "exec")
    file, _, test = node.partition("::")
    function = re.match(r"\w+", test.rpartition("::")[2])
    assert function is not None
    assert f"def {function[0]}(" in (ROOT / file).read_text()
