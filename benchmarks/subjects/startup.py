"""Cost of an import and of ``kip30 --help``, and modules that an import must not load."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from typing import NamedTuple

from benchmarks.report.figure import Figure
from benchmarks.store_address import StoreAddress, scratch

ROUNDS = 30

_BARE = (sys.executable, "-c", "pass")
_IMPORT = (sys.executable, "-c", "import kip30")
_HELP = (sys.executable, "-m", "kip30", "--help")
_LOADED = """
import sys
before = set(sys.modules)
import kip30
print(*{name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names)
"""
_ALLOWED = {"kip30", "typing_extensions"}


class Cost(NamedTuple):
    """Milliseconds of one process: by the clock, and on a core."""

    elapsed: float
    computed: float


def measure(_: StoreAddress) -> list[Figure]:
    with scratch() as folder:
        environment = _compiling_to(folder)
        rounds = [_round(environment) for _ in range(ROUNDS + 1)][1:]
    more = [(one.elapsed - bare.elapsed, one.computed - bare.computed) for bare, one, _ in rounds]
    elapsed, computed = zip(*more, strict=True)
    return [
        Figure.median("bare interpreter", [bare.elapsed for bare, _, _ in rounds], "ms"),
        Figure.median("import kip30, over the bare interpreter", elapsed, "ms", at_most=80),
        Figure.median("import kip30, over the bare interpreter, CPU", computed, "ms"),
        Figure.median(
            "kip30 --help, whole process", [one.elapsed for *_, one in rounds], "ms", at_most=250
        ),
        Figure.median(
            "kip30 --help, whole process, CPU", [one.computed for *_, one in rounds], "ms"
        ),
        Figure(
            name="foreign modules of import kip30 besides typing_extensions",
            value=len(_loaded() - _ALLOWED),
            unit="modules",
            at_most=0,
        ),
    ]


def _compiling_to(folder: Path) -> dict[str, str]:
    """Return the environment with a cache of bytecode, as an installed package has one."""
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPYCACHEPREFIX": str(folder)}


def _round(environment: Mapping[str, str]) -> tuple[Cost, Cost, Cost]:
    return _cost(_BARE, environment), _cost(_IMPORT, environment), _cost(_HELP, environment)


def _cost(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    start, before = time.perf_counter(), _computed()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return Cost((time.perf_counter() - start) * 1e3, (_computed() - before) * 1e3)


def _computed() -> float:
    usage = getrusage(RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _loaded() -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], check=True, stdout=subprocess.PIPE, text=True
    )
    return set(done.stdout.split())
