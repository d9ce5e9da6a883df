"""Layout and wording of the code: every store has the same files, and few of its own."""

import ast
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = ("kip30", "backends", "conformance")
STORES = ROOT / "backends" / "kip30_backends"

REQUIRED = {
    "__init__",
    "backend",
    "calls",
    "resources",
    "election",
    "errors",
    "membership",
    "scanning",
    "session",
    "settings",
    "target_states",
    "storage",
    "watch",
}
"""The files of every store."""
COMMON = {
    "claims": "what members and leaders share, unless the two have nothing in common there",
    "observation_order": "the order of answers, where the store does not number its states itself",
    "row_decoding": "what row each record becomes, where scanning alone would be too long",
}
BEGINS = {
    "backend": r".+ as a backend\.",
    "calls": "One request to the store",
    "claims": "Shared code of members and leaders: ",
    "resources": "Resources that the drivers of one backend share, ",
    "election": "Leaders: ",
    "errors": "Conversion of errors of .+ to kip30's: ",
    "membership": "Members: ",
    "observation_order": "One order over all answers of a backend, ",
    "row_decoding": "Decoding rows: ",
    "scanning": "Reading the store in bulk: ",
    "session": "The session of a backend: ",
    "settings": "Settings of .+, as an operator writes them",
    "target_states": "Reading targets: ",
    "storage": "Records: ",
    "watch": "Observing targets: ",
}
"""Beginnings of the docstring of each file, in every store: one name holds the same thing."""
OWN = {
    "embedded": {
        "change_signal": "no server sends notifications",
        "connections": "SQLite has one for each thread",
        "database": "transactions",
        "database_file": "no server makes the tables",
        "fork_safety": "SQLite breaks in forked children",
        "liveness": "no server ends dead sessions",
        "liveness_locks": "how sessions show that they live",
        "service_pruning": "its rows stay for ever otherwise",
        "watch_thread": "no server tells clients apart whom a change concerns",
    },
    "etcd": {},
    "consul": {
        "blocking_query": "how Consul notifies",
        "transactions": "storage, claims and scans build them",
    },
    "zookeeper": {
        "scan_reader": "a scan reads hundreds of nodes a request",
        "tree": "nodes need parents, which others must not be able to change",
    },
    "cassandra": {
        "tombstone_folding": "deletions stay in the way of reads",
        "partition_queue": "writes on one partition conflict",
        "scan_partitions": "partitions are cut into ranges of rows, and read by them",
        "schema": "clients may make the tables",
        "serial_reads": "serial reads of one partition delay each other",
    },
}
"""The files of one store alone, with the reason."""
MOST_FILES = 23
MOST_LINES = 450
MOST_TOP = 16
MOST_PER_THOUSAND = {0.4: {"told"}, 0.8: {"whoever", "somebody", "nobody", "whatever"}}
"""Limits for words that name no subject, per thousand words of docstrings."""
QUESTIONS = {"what", "who", "whose", "whom", "which", "how", "whether", "why"}
"""No docstring begins with them, and no name of a test: its subject has a name."""
RETRY = {"retry", "retries", "retried", "retrying"}
LEAST_RETRY_PER_THOUSAND = 0.1
LEAST_COMMENTS_PER_LINE = 0.02
COMMENTED = ["kip30/runtime", "kip30/driver", *(f"backends/kip30_backends/{name}" for name in OWN)]
FOR_TOOLS = re.compile(r"#\s*(noqa|type:|pyright:|mypy:|pragma:|fmt:)")
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


SAME_ROLE = {
    "Answer": "the response to a request of its store",
    "AnswerOrder": "puts the answers of a store in order",
    "Bar": "shows the progress of a long run on a terminal",
    "Batches": "sends reads, many in a request",
    "Call": "a request over its attempts",
    "Calls": "sends the requests of a backend",
    "ClaimRequest": "a claim to be made, for a key, a service or a group",
    "Claims": "keys with an owner, held under the session of a backend",
    "ClaimView": "the view of a scan of kip30's members, leaders and epochs",
    "Connections": "all connections of a client, lent out for one request each",
    "Content": "the entries of a target, and why other keys of it are none",
    "Display": "shows the progress of a long run on a terminal",
    "Endpoints": "the servers of one cluster, of which one is in use",
    "Event": "a notification, in the words of its sender: an etcd server, the kernel",
    "Failure": "how a request ended, in the words of its store",
    "Forkable": "an open object that a forked child must not touch",
    "HeldMember": "that by which a claim holds its member id",
    "KeyedWrite": "a write with its key, and the keys that fence and guard it",
    "LeaseGoneError": "the store knows no such lease",
    "Lines": "shows the progress of a long run where there is no terminal",
    "OrderMark": "how far the answers of a store had come",
    "Pruning": "removes services of one root",
    "RawView": "the view of a scan of all records as they are",
    "Read": "a read of one key, sent alone or with others",
    "Renewal": "renews the session at a part of its timeout",
    "RequestContext": "what all requests of a backend share",
    "Resources": "what the parts of one open backend or coordinator share",
    "ScanView": "which keys a scan covers, and what is a record of it",
    "Session": "a lease of the store, and what is held under it",
    "Sessions": "opens, renews and ends the sessions of one backend, one at a time",
    "Summary": "the results of a whole run, for its report",
    "TargetKeys": "the keys of a target, and what they hold",
    "TargetStates": "reads the targets of one namespace or root",
    "Term": "a leadership from its gain to its end; see the glossary",
    "TypedRequest": "a request, and how its answer is read",
    "ValueView": "the view of a scan of kip30's values",
    "Watches": "all watches of one backend",
}
"""Class names that occur more than once, because several stores or tools need the same thing."""


@pytest.mark.parametrize("store", OWN)
def test_a_store_has_the_files_that_every_store_has(store: str) -> None:
    names = {path.stem for path in (STORES / store).glob("*.py")}
    assert names >= REQUIRED
    assert names - REQUIRED - set(COMMON) == set(OWN[store])


@pytest.mark.parametrize("store", OWN)
def test_the_client_is_the_only_package_within_a_store(store: str) -> None:
    folders = {path.parent.name for path in (STORES / store).glob("*/*.py")}
    assert folders <= {"client"}


@pytest.mark.parametrize("store", OWN)
def test_a_store_has_few_files(store: str) -> None:
    assert len(list((STORES / store).rglob("*.py"))) <= MOST_FILES


@pytest.mark.parametrize("store", OWN)
def test_files_of_one_name_hold_the_same_in_each_store(store: str) -> None:
    for name, beginning in BEGINS.items():
        path = STORES / store / f"{name}.py"
        if path.exists():
            text = ast.get_docstring(ast.parse(path.read_text())) or ""
            assert re.match(beginning, text), path


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


def test_docstrings_call_a_retry_a_retry() -> None:
    words = re.findall(r"[a-z']+", " ".join(docstrings()).lower())
    assert 1000 * sum(word in RETRY for word in words) / len(words) >= LEAST_RETRY_PER_THOUSAND


def test_no_docstring_begins_with_a_question_word() -> None:
    assert not [text for text in docstrings() if text and text.split()[0].lower() in QUESTIONS]


def test_no_test_is_named_by_a_question_word() -> None:
    names = [
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def test_(\w+)", path.read_text(), re.MULTILINE)
    ]
    assert len(names) > 1000
    assert not [name for name in names if name.split("_")[0] in QUESTIONS]


@pytest.mark.parametrize("folder", COMMENTED)
def test_code_has_comments(folder: str) -> None:
    """Comments say why; lines of docstrings are no code, and words for tools no comments."""
    counts = [comments_and_code(path) for path in (ROOT / folder).rglob("*.py")]
    comments, code = map(sum, zip(*counts, strict=True))
    assert comments / code >= LEAST_COMMENTS_PER_LINE, f"{comments} comments, {code} lines"


def test_a_class_name_occurs_once_unless_it_has_the_same_role() -> None:
    """Private classes are left out: no other file can import them."""
    names = Counter(node.name for node in nodes() if isinstance(node, ast.ClassDef))
    found = {name for name, count in names.items() if count > 1 and not name.startswith("_")}
    assert found == set(SAME_ROLE)


def comments_and_code(path: Path) -> tuple[int, int]:
    """Return the number of comments and that of lines that hold code."""
    comments, lines = 0, set[int]()
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                comments += not FOR_TOOLS.match(token.string)
            elif token.type not in NOT_CODE:
                lines.update(range(token.start[0], token.end[0] + 1))
    return comments, len(lines - docstring_lines(path))


def docstring_lines(path: Path) -> set[int]:
    """Return the lines of all strings that are statements, which document what they follow."""
    return {
        number
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def docstrings() -> Iterator[str]:
    for node in nodes():
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


def nodes() -> Iterator[ast.AST]:
    for part in PARTS:
        for path in (ROOT / part).rglob("*.py"):
            yield from ast.walk(ast.parse(path.read_text()))
