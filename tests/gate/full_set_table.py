"""Writes ``docs/full-set.md``: the last result of each environment of the full set.

tox keeps the results of one checkout; see ``toxfile.py``. An environment that was not run in this
one keeps its row, so that the set can be run in parts, and on several machines.

Usage: ``python tests/gate/full_set_table.py FILE``
"""

import configparser
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOX = configparser.ConfigParser(interpolation=None)
TOX.read(ROOT / "tox.ini")

_HEAD = """# The full set

Written by `python tests/gate/full_set_table.py docs/full-set.md`, after `tox -m full` or a part.
[CONTRIBUTING](../CONTRIBUTING.md) explains gate and full set.

How each environment ended last, on which commit. *Unstable* tests failed beside others, and passed
twice alone; the list below the table names them.

"""
_WIDTH = 120
_COLUMNS = ("environment", "verdict", "commit", "date", "minutes", "tests", "skipped", "unstable")


def page(results: Path, before: str = "") -> str:
    """Return the whole page: rows from the files in the folder *results*, or from *before*."""
    kept = {line.split("|")[1].strip(): line for line in before.splitlines() if line[:1] == "|"}
    lines = [_line(_COLUMNS), _line(("---",) * len(_COLUMNS))]
    unstable = dict(_unstable_in(before))
    for name in label("full"):
        file = results / f"{name}.json"
        if file.exists():
            found: dict[str, Any] = json.loads(file.read_text())
            lines.append(_line(_row(name, found)))
            unstable[name] = [_item(name, test) for test in found.get("unstable", [])]
        else:
            lines.append(kept.get(name) or _not_run(name))
    items = [item for name in label("full") for item in unstable.get(name, [])]
    return _HEAD + "".join(f"{line}\n" for line in [*lines, "", *items]).rstrip("\n") + "\n"


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


def _item(name: str, test: str) -> str:
    """Return *test* as an item of the list below the table: most are too long for a cell."""
    file, _, function = test.partition("::")
    text = f"* {name}: `{function}` in `{file}`"
    return textwrap.fill(
        text, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _unstable_in(before: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the items of the page *before*, by environment."""
    items = re.findall(r"^\* .*\n(?:  .*\n)*", before, re.MULTILINE)
    for name, group in groupby(items, lambda item: item[2:].partition(":")[0]):
        yield name, [item.rstrip("\n") for item in group]


def _row(name: str, found: dict[str, Any]) -> Sequence[str]:
    verdict = "green" if found["is_green"] else "red"
    commit = found["commit"][:10] + (", changed" if found["dirty"] else "")
    tests, skipped = (str(found.get(key, "")) for key in ("tests", "skipped"))
    unstable = str(len(found["unstable"])) if "unstable" in found else ""
    minutes = str(found["minutes"])
    return name, verdict, commit, found["date"], minutes, tests, skipped, unstable


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(page(ROOT / ".tox" / "results", file.read_text() if file.exists() else ""))
