"""Where things are, and in which words: every store has the same files, and few of its own."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STORES = ROOT / "backends" / "kip30_backends"

REQUIRED = {
    "__init__",
    "backend",
    "election",
    "engine",
    "errors",
    "faults",
    "membership",
    "request",
    "scanning",
    "session",
    "settings",
    "snapshots",
    "storage",
    "watch",
}
"""What every store has."""
COMMON = {
    "claims": "what members and leaders share, unless the two have nothing in common there",
    "order": "the order of answers, where the store does not number its states itself",
    "scan_views": "what a scan reads keys as, where scanning alone would be too long",
}
OWN = {
    "embedded": {
        "change_signal": "no server sends notifications",
        "connections": "SQLite has one for each thread",
        "database": "transactions",
        "fork_safety": "SQLite breaks in forked children",
        "liveness": "no server ends dead sessions",
        "locks": "how sessions show that they live",
        "pruning": "its rows stay for ever otherwise",
        "schema": "no server makes the tables",
    },
    "etcd": {},
    "consul": {
        "blocking_query": "how Consul notifies",
        "transactions": "storage, claims and scans build them",
    },
    "zookeeper": {
        "scan_reader": "a scan reads hundreds of nodes a request",
        "security": "access lists of the nodes above kip30's",
        "tree": "nodes need parents",
    },
    "cassandra": {
        "batched_reads": "reads of one partition travel together",
        "fences": "no condition sees two partitions",
        "folding": "deletions stay in the way of reads",
        "partition_queue": "writes on one partition conflict",
        "scan_request": "a scan has connections of its own",
        "scan_tables": "a scan of kip30's own tables",
        "schema": "clients may make the tables",
    },
}
"""What only one store has, and why."""
MOST_LINES = 465
MOST_TOP = 16
MOST_PER_THOUSAND = {0.4: {"told"}, 0.8: {"whoever", "somebody", "nobody", "whatever"}}
"""How often words that name no subject may occur among a thousand words of docstrings."""


@pytest.mark.parametrize("store", OWN)
def test_a_store_has_the_files_that_every_store_has(store: str) -> None:
    names = {path.stem for path in (STORES / store).glob("*.py")}
    assert names >= REQUIRED
    assert names - REQUIRED - set(COMMON) == set(OWN[store])


@pytest.mark.parametrize("store", OWN)
def test_what_knows_the_library_of_a_store_is_its_client(store: str) -> None:
    folders = {path.parent.name for path in (STORES / store).glob("*/*.py")}
    assert folders <= {"client"}


@pytest.mark.parametrize("store", OWN)
def test_no_file_of_a_store_is_long(store: str) -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in (STORES / store).rglob("*.py")}
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}


def test_few_modules_are_at_the_top() -> None:
    assert len(list((ROOT / "kip30").glob("*.py"))) <= MOST_TOP


def test_docstrings_are_in_the_field_s_words() -> None:
    words = re.findall(r"[a-z']+", " ".join(docstrings()).lower())
    for most, some in MOST_PER_THOUSAND.items():
        found = sum(word in some for word in words)
        assert 1000 * found / len(words) <= most, some


def docstrings() -> Iterator[str]:
    for part in ("kip30", "backends", "conformance"):
        for path in (ROOT / part).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                    yield ast.get_docstring(node) or ""
