"""Rules for modules that are to run in a simulation (D19)."""

import ast
import importlib
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

import kip30
import kip30_backends.embedded

CORE = Path(kip30.__file__).parent
EMBEDDED = Path(kip30_backends.embedded.__file__).parent
FILES = sorted(
    file
    for files in (
        CORE.glob("*.py"),
        *((CORE / part).rglob("*.py") for part in ("aio", "driver", "recipes", "runtime")),
        EMBEDDED.rglob("*.py"),
    )
    for file in files
    if file.name != "__main__.py"
)

LOOKED_UP = {"threading", "time", "random", "secrets"}
"""Modules whose names are looked up when they are used, for only then there are stand-ins."""

NOT_SIMULATED = {"queue", "select", "selectors", "socket", "_thread", "multiprocessing", "sched"}

IMPORT_EXCEPTIONS = {
    ("runtime/process_end.py", "multiprocessing.util"): "only in a process of that",
    ("embedded/change_signal.py", "select"): "it polls, for which there is a stand-in",
    ("kip30/signals.py", "socket"): "signals of the system wake it",
    ("kit/dialing.py", "socket"): "it connects to servers, which are not simulated",
    ("kit/tls_probe.py", "socket"): "it connects to a server before a driver does",
}
BASE_EXCEPTIONS = {
    ("embedded/fork_safety.py", "_Pauses"): "used by forks alone",
    ("runtime/plugin_paths.py", "_Finder"): "used while modules are imported, where none waits",
}
LOCK_EXCEPTIONS = {
    "kip30_backends.embedded.fork_safety._process.lock": "held while nothing waits",
    "kip30_backends.embedded.liveness_locks.held_off.lock": "the same",
    "kip30.runtime.thread_frames._lock": "the same",
}
SET_EXCEPTIONS = {
    ("embedded/fork_safety.py", "_held"): "used by forks alone",
    ("embedded/fork_safety.py", "engines"): "the same",
    ("embedded/fork_safety.py", "stores"): "the same",
    ("kit/fork_safety.py", "_open"): "the same",
}

PLAIN = {"str", "int", "bytes"}
"""Types whose order in a set does not depend on addresses, or which callers sort."""
READERS = {"enumerate", "filter", "iter", "list", "map", "next", "tuple", "zip"}


class Set(NamedTuple):
    """A place where the elements of a set are iterated over."""

    line: int
    name: str


def name_of(file: Path) -> str:
    return "/".join(file.parts[-2:])


def imports(tree: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield the modules that are imported, and whether that is for names of theirs."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, False) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, True


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {name_of(file): ast.parse(file.read_text()) for file in FILES}


@pytest.mark.case("D19")
def test_d19_names_are_looked_up_when_they_are_used(trees: dict[str, ast.Module]) -> None:
    found = [
        f"{file}: from {module} import"
        for file, tree in trees.items()
        for module, is_for_names in imports(tree)
        if is_for_names and module in LOOKED_UP
    ]
    assert len(trees) > 100
    assert found == []


@pytest.mark.case("D19")
def test_d19_nothing_waits_where_no_simulation_reaches(trees: dict[str, ast.Module]) -> None:
    found = {
        (file, module)
        for file, tree in trees.items()
        for module, _ in imports(tree)
        if module.partition(".")[0] in NOT_SIMULATED
    }
    assert found == IMPORT_EXCEPTIONS.keys()


@pytest.mark.case("D19")
def test_d19_no_class_is_a_thread_or_a_lock(trees: dict[str, ast.Module]) -> None:
    found = {
        (file, node.name)
        for file, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for base in node.bases
        if ast.unparse(base).startswith("threading.")
    }
    assert found == BASE_EXCEPTIONS.keys()


LOCKS = (
    type(threading.Lock()),
    type(threading.RLock()),
    threading.Condition,
    threading.Event,
    threading.Semaphore,
    threading.Barrier,
)


def locks_of(module: ModuleType) -> Iterator[str]:
    """Yield the locks that *module* has, and those of its objects and classes."""
    for name, value in vars(module).items():
        if isinstance(value, LOCKS):
            yield f"{module.__name__}.{name}"
        elif getattr(value, "__module__", None) == module.__name__:
            attributes = getattr(value, "__dict__", {})
            yield from (
                f"{module.__name__}.{name}.{key}"
                for key, one in attributes.items()
                if isinstance(one, LOCKS)
            )


def module_of(file: Path) -> ModuleType:
    root = CORE.parent if CORE in file.parents else EMBEDDED.parents[1]
    parts = file.relative_to(root).with_suffix("").parts
    return importlib.import_module(".".join(parts).removesuffix(".__init__"))


@pytest.mark.case("D19")
def test_d19_no_lock_is_made_at_import() -> None:
    found = {lock for file in FILES for lock in locks_of(module_of(file))}
    assert found == LOCK_EXCEPTIONS.keys()


def sets_of_objects(tree: ast.Module) -> set[str]:
    """Return the names and attributes that are declared as sets of other than plain values."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign | ast.arg) and isinstance(node.annotation, ast.Subscript):
            kind, _, element = ast.unparse(node.annotation).partition("[")
            if kind.rpartition(".")[2] in {"set", "frozenset", "WeakSet"}:
                target = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
                if element.removesuffix("]") not in PLAIN:
                    found.add(target.rpartition(".")[2])
    return found


def gone_through(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield all expressions whose elements are iterated over."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            yield node.iter
        elif isinstance(node, ast.Starred):
            yield node.value
        elif isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) if name in READERS:
                    yield from node.args
                case ast.Attribute(attr="pop") if not node.args:
                    yield node.func.value
                case _:
                    pass


def sets_gone_through(tree: ast.Module) -> set[Set]:
    names = sets_of_objects(tree)
    return {
        Set(one.lineno, name)
        for one in gone_through(tree)
        if isinstance(one, ast.Name | ast.Attribute)
        and (name := ast.unparse(one).rpartition(".")[2]) in names
    }


@pytest.mark.case("D19")
def test_d19_no_set_of_objects_is_gone_through(trees: dict[str, ast.Module]) -> None:
    """Its order is that of addresses: another one in each process."""
    found = {(file, one.name) for file, tree in trees.items() for one in sets_gone_through(tree)}
    assert found == SET_EXCEPTIONS.keys()


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("a: set[Thing] = set()\nfor one in a: pass", [2]),
        ("self.a: set['Thing'] = set()\nx = list(self.a)", [2]),
        ("self.a: WeakSet[Thing] = WeakSet()\nx = [*other.a, 1]", [2]),
        ("def f(a: frozenset[Thing]):\n    return {one: 1 for one in a}", [2]),
        ("a: set[Thing] = set()\none = a.pop()", [2]),
        ("a: set[Thing] = set()\na.discard(1)\nb = one in a\nc = len(a)", []),
        ("a: set[str] = set()\nfor one in a: pass", []),
        ("a: dict[Thing, None] = {}\nfor one in a: pass", []),
    ],
)
def test_sets_are_found(code: str, lines: list[int]) -> None:
    assert [one.line for one in sets_gone_through(ast.parse(code))] == lines
