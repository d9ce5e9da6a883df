"""Write ``docs/gate.md``: on which stores the gate runs each contract case, on how many servers.

Usage, in an environment that has kip30 with the extra ``conformance``:
``python tests/gate/case_table.py FILE``
"""

import contextlib
import os
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STORES = ("embedded", "zookeeper", "etcd", "consul", "cassandra")

_CASE = re.compile(r"test_([A-Z]\d\d)_")
_HEAD = """# The gate

Written by `python tests/gate/case_table.py docs/gate.md`. [CONTRIBUTING](../CONTRIBUTING.md)
explains gate and full set.

The number of servers on which the gate runs a contract case, by store; *full* means that only
`tox -m full` runs it on this store, because it is a fault that another store shows, or has crowds
and repetitions. The embedded store has no server. A case that a store skips is listed all the
same; [support](support.md) has the results.

"""


class _Collected:
    """Keeps, of each case and store, on how many servers it runs, in the gate and at all."""

    def __init__(self) -> None:
        self.gate = defaultdict[tuple[str, str], set[str]](set)
        self.everything = defaultdict[tuple[str, str], set[str]](set)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            if case := _CASE.match(item.name):
                place = (case[1], item.path.stem.removeprefix("test_"))
                nodes = "3" if "nodes-3" in item.name else "1"
                self.everything[place].add(nodes)
                if item.get_closest_marker("gate") is not None:
                    self.gate[place].add(nodes)

    def cell(self, case: str, store: str) -> str:
        place = (case, store)
        if place in self.gate:
            return "yes" if store == "embedded" else ", ".join(sorted(self.gate[place]))
        return "full" if place in self.everything else ""


def page() -> str:
    """Return the whole page."""
    found = _Collected()
    files = [f"tests/conformance/test_{store}.py" for store in STORES]
    os.chdir(ROOT)
    with contextlib.redirect_stdout(sys.stderr):
        pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", *files], plugins=[found])
    rows = [
        [case, *(found.cell(case, store) for store in STORES)]
        for case in sorted({case for case, _ in found.everything})
    ]
    table = [["case", *STORES], ["---"] * (len(STORES) + 1), *rows]
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for row in table)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page())
