"""The documents: examples run, links lead somewhere, lines and table cells are short."""

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30_conformance.all_suites import SUITES
from kip30_conformance.clients import controller
from kip30_conformance.report.results import case_id

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
WITH_MARKDOWN = ("backends", "benchmarks", "conformance", "docker", "docs", "kip30", "tests")
MARKDOWN = [
    *sorted(ROOT.glob("*.md")),
    *sorted(path for part in WITH_MARKDOWN for path in (ROOT / part).rglob("*.md")),
    *sorted(path for part in WITH_MARKDOWN for path in (ROOT / part).rglob("*.md.in")),
]
"""All Markdown of the project, templates of it included."""
LONGEST_LINE = 120
LONGEST_CELL = 100
LINK_ALONE = re.compile(r"\[\S+\]\(\S+\)")
SECOND_SENTENCE = re.compile(r"[.!?] +\S|<br")
GENERATED_FROM_THE_SUITES = ROOT / "docs" / "support.md"
MOST_PER_THOUSAND = {0.3: {"told"}, 0.2: {"whoever", "somebody", "nobody", "whatever"}}
"""Most occurrences of words that name no subject in a thousand words of documents."""
CASES = re.compile(r"\[([A-Z]\d+(?:[^\w\]]+[A-Z]\d+)*)\]")
LINK = re.compile(r"\]\((?!https?://)([^)#]+)")


@pytest.mark.parametrize(("document", "least"), [("README.md", 20), ("docs/semantics.md", 5)])
def test_the_examples_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, document: str, least: int
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KIP30_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    results = doctest.testfile(str(ROOT / document), module_relative=False)
    assert results.failed == 0
    assert results.attempted > least


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    missing = [
        link for link in LINK.findall(document.read_text()) if not (document.parent / link).exists()
    ]
    assert not missing


@pytest.mark.parametrize("document", MARKDOWN, ids=lambda path: path.name)
def test_no_line_is_long(document: Path) -> None:
    """A link without any blank is the only exception: it cannot be divided."""
    lines = document.read_text().splitlines()
    found = [line for line in lines if len(line) > LONGEST_LINE and not LINK_ALONE.fullmatch(line)]
    assert found == []


@pytest.mark.parametrize("document", MARKDOWN, ids=lambda path: path.name)
def test_table_cells_are_short_phrases(document: Path) -> None:
    found = [
        cell
        for cell in cells(document.read_text())
        if len(cell) > LONGEST_CELL or SECOND_SENTENCE.search(cell)
    ]
    assert found == []


def test_documents_are_in_the_field_s_words() -> None:
    """The support page has docstrings of the suites, which are counted with all docstrings."""
    pages = (page for page in MARKDOWN if page != GENERATED_FROM_THE_SUITES)
    words = re.findall(r"[a-z]+", " ".join(page.read_text() for page in pages).lower())
    for most, some in MOST_PER_THOUSAND.items():
        found = sum(word in some for word in words)
        assert 1000 * found / len(words) <= most, some


def test_the_suite_runs_the_controller_of_the_documents() -> None:
    """The suite is installed without the documents, so it has a copy of the program."""
    assert (
        Path(controller.__file__).read_text()
        == (ROOT / "docs" / "examples" / "controller.py").read_text()
    ), "copy docs/examples/controller.py to kip30_conformance/clients"


def test_both_commands_of_the_readme_are_those_that_are_run() -> None:
    readme = (ROOT / "README.md").read_text()
    command = "python3 -m venv .venv && .venv/bin/pip install --quiet tox && .venv/bin/tox"
    assert command in readme
    assert command in (ROOT / ".ci" / "run").read_text()


def test_the_cases_that_are_named_exist() -> None:
    semantics = (ROOT / "docs" / "semantics.md").read_text()
    named = {case for cases in CASES.findall(semantics) for case in re.findall(r"\w+", cases)}
    assert len(named) > 50
    assert named <= {case_id(name) for suite in SUITES for name in vars(suite)}


def test_runners_in_the_text_name_their_service() -> None:
    text = "".join(one.read_text() for one in DOCUMENTS)
    spans = re.findall(r"`(kip30 run [^`]* -- [^`]*)`", text)
    assert spans
    assert [one for one in spans if "--service" not in one] == []


def cells(text: str) -> Iterator[str]:
    """Yield the cells of all tables of *text*; lines in fences are no tables."""
    is_in_fence = False
    for line in text.splitlines():
        is_in_fence ^= line.startswith("```")
        if line.startswith("|") and not is_in_fence:
            for cell in re.split(r"(?<!\\)\|", line.strip("| ")):
                yield cell.strip()
