"""Writes ``docs/full-set.md``: the last result of each environment of the full set.

tox keeps the results; see ``toxfile.py``. Usage: ``python tests/gate/full_set_table.py FILE``
"""

import configparser
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOX = configparser.ConfigParser(interpolation=None)
TOX.read(ROOT / "tox.ini")

_HEAD = """# The full set

Written by `python tests/gate/full_set_table.py docs/full-set.md`, after `tox -m full` or a part.
[CONTRIBUTING](../CONTRIBUTING.md) explains gate and full set.

How each environment ended last, on which commit. *Unstable* tests failed beside others, and passed
twice alone.

"""
_COLUMNS = ("environment", "verdict", "commit", "date", "minutes", "tests", "skipped", "unstable")


def page(results: Path) -> str:
    """Return the whole page, from the files in the folder *results*."""
    rows = [_COLUMNS, ("---",) * len(_COLUMNS), *(_row(results, name) for name in label("full"))]
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def label(name: str) -> list[str]:
    """Return the environments of the label *name* of ``tox.ini``."""
    lines = dict(line.split(" = ") for line in TOX["tox"]["labels"].strip().splitlines())
    return names(lines[name])


def names(text: str) -> list[str]:
    """Return the names in *text*, which commas separate."""
    return [name.strip() for name in text.split(",")]


def _row(results: Path, name: str) -> tuple[str, ...]:
    file = results / f"{name}.json"
    if not file.exists():
        return (name, "not run", *[""] * (len(_COLUMNS) - 2))
    found: dict[str, Any] = json.loads(file.read_text())
    verdict = "green" if found["is_green"] else "red"
    commit = found["commit"][:10] + (", changed" if found["dirty"] else "")
    tests, skipped = (str(found.get(key, "")) for key in ("tests", "skipped"))
    unstable = ", ".join(f"`{test}`" for test in found.get("unstable", []))
    return name, verdict, commit, found["date"], str(found["minutes"]), tests, skipped, unstable


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(ROOT / ".tox" / "results"))
