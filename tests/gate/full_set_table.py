"""Writes ``docs/full-set.md``: the last result of each environment of the full set.

tox keeps the results of one checkout; see ``toxfile.py``. An environment that was not run in this
one keeps its row, so that the set can be run in parts, and on several machines.

Usage: ``python tests/gate/full_set_table.py FILE``
"""

import configparser
import json
import sys
from collections.abc import Sequence
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


def page(results: Path, before: str = "") -> str:
    """Return the whole page: rows from the files in the folder *results*, or from *before*."""
    kept = {line.split("|")[1].strip(): line for line in before.splitlines() if line[:1] == "|"}
    lines = [_line(_COLUMNS), _line(("---",) * len(_COLUMNS))]
    for name in label("full"):
        file = results / f"{name}.json"
        lines.append(_line(_row(file)) if file.exists() else kept.get(name) or _not_run(name))
    return _HEAD + "".join(f"{line}\n" for line in lines)


def label(name: str) -> list[str]:
    """Return the environments of the label *name* of ``tox.ini``."""
    lines = dict(line.split(" = ") for line in TOX["tox"]["labels"].strip().splitlines())
    return names(lines[name])


def names(text: str) -> list[str]:
    """Return the names in *text*, which commas separate."""
    return [name.strip() for name in text.split(",")]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _not_run(name: str) -> str:
    return _line((name, "not run", *[""] * (len(_COLUMNS) - 2)))


def _row(file: Path) -> Sequence[str]:
    found: dict[str, Any] = json.loads(file.read_text())
    verdict = "green" if found["is_green"] else "red"
    commit = found["commit"][:10] + (", changed" if found["dirty"] else "")
    tests, skipped = (str(found.get(key, "")) for key in ("tests", "skipped"))
    unstable = ", ".join(f"`{test}`" for test in found.get("unstable", []))
    minutes = str(found["minutes"])
    return file.stem, verdict, commit, found["date"], minutes, tests, skipped, unstable


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(page(ROOT / ".tox" / "results", file.read_text() if file.exists() else ""))
