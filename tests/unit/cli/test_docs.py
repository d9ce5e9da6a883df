from pathlib import Path

import pytest

from kip30.cli._generate_docs import refreshed
from kip30.runtime import backend_registry

DOCS = Path(__file__).parents[3] / "docs"
AGAIN = "python -m kip30.cli._generate_docs docs/command-line.md docs/configuration.md"


@pytest.mark.parametrize("name", ["command-line.md", "configuration.md"])
def test_the_generated_parts_are_those_of_the_program(name: str) -> None:
    written = (DOCS / name).read_text()
    assert written == refreshed(written), f"make them anew: {AGAIN}"


def test_every_registered_store_has_its_settings_documented() -> None:
    written = (DOCS / "configuration.md").read_text()
    missing = [
        name
        for name in backend_registry.names()
        if f"<!-- generated: settings of {name} -->\n* `" not in written
    ]
    assert missing == [], f"add a part for each, and make it: {AGAIN}"


def test_prose_and_what_cannot_be_made_stay() -> None:
    document = "a\n<!-- generated: settings of nothing -->\nkept\n<!-- end -->\nb\n"
    assert refreshed(document) == document


def test_an_outdated_part_is_generated_again() -> None:
    document = "<!-- generated: exit codes -->\nold\n<!-- end -->\n"
    assert "old" not in refreshed(document)
    assert "\n* 4: The answer was lost" in refreshed(document)


@pytest.mark.parametrize("name", ["commands", "json", "settings of every store"])
def test_no_line_is_long_and_no_code_span_is_divided(name: str) -> None:
    part = refreshed(f"<!-- generated: {name} -->\n<!-- end -->\n").replace("```", "")
    assert [line for line in part.splitlines() if len(line) > 120] == []
    assert [line for line in part.splitlines() if line.count("`") % 2] == []
