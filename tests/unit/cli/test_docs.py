from pathlib import Path

import pytest

from kip30.cli._docs import refreshed
from kip30.runtime import registry

DOCS = Path(__file__).parents[3] / "docs"
AGAIN = "python -m kip30.cli._docs docs/command-line.md docs/configuration.md"


@pytest.mark.parametrize("name", ["command-line.md", "configuration.md"])
def test_the_generated_parts_are_those_of_the_program(name: str) -> None:
    written = (DOCS / name).read_text()
    assert written == refreshed(written), f"make them anew: {AGAIN}"


def test_every_registered_store_has_its_settings_documented() -> None:
    written = (DOCS / "configuration.md").read_text()
    missing = [
        name
        for name in registry.names()
        if f"<!-- generated: settings of {name} -->\n| Setting" not in written
    ]
    assert missing == [], f"add a part for each, and make it: {AGAIN}"


def test_prose_and_what_cannot_be_made_stay() -> None:
    document = "a\n<!-- generated: settings of nothing -->\nkept\n<!-- end -->\nb\n"
    assert refreshed(document) == document


def test_a_part_that_is_out_of_date_is_made_anew() -> None:
    document = "<!-- generated: exit codes -->\nold\n<!-- end -->\n"
    assert "old" not in refreshed(document)
    assert "| 4 | The answer was lost" in refreshed(document)
