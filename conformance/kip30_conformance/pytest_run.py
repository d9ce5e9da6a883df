"""Running checks with pytest, untouched by a configuration of pytest in the current directory."""

import os
import random
import signal
import sys
import threading
from collections.abc import Collection, Generator
from contextlib import contextmanager, redirect_stdout
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import FrameType

import pytest

from kip30 import ConfigError
from kip30_conformance import failure_logs
from kip30_conformance.harness import Harness
from kip30_conformance.plugin import Conformance
from kip30_conformance.report.progress import display_on
from kip30_conformance.report.results import Level

_SECONDS_PER_CHECK = 300
_SUITES = "kip30_conformance.all_suites"  # by name: pytest rewrites the asserts of what it imports


def execute(
    harness: Harness, level: Level, cases: Collection[str], *, seed: int, folder: Path
) -> Conformance:
    """Run *cases*, or all of *level*, and return the plugin that knows how they ended.

    Writes ``junit.xml`` and pytest's own output, ``pytest.log``, to *folder*.

    Raises:
        ConfigError: Some case does not exist. Nothing was run.
        RuntimeError: pytest itself failed.
    """
    display = display_on(sys.stderr)
    plugin = Conformance(harness, level, cases, display)
    random.seed(seed)
    try:
        with (folder / "pytest.log").open("w") as log, redirect_stdout(log), _prepared(plugin):
            status = pytest.main(_arguments(seed, folder), plugins=[plugin, failure_logs])
    finally:
        display.end()
    unknown = set(cases) - plugin.known_cases
    if unknown and not plugin.interrupted:
        raise ConfigError(
            f"there is no case {', '.join(sorted(unknown))}: there are"
            f" {_spans(plugin.known_cases)}; `report.md` of a run lists what each one proves"
        )
    if status == pytest.ExitCode.INTERNAL_ERROR:
        raise RuntimeError(f"pytest failed: see {folder / 'pytest.log'}")
    return plugin


def _arguments(seed: int, folder: Path) -> list[str]:
    return [
        *("--pyargs", _SUITES),
        *("-o", "python_files=*.py", "-o", "python_classes=*Tests"),
        *("-c", os.devnull, "--rootdir", str(folder), "--noconftest", "--import-mode=importlib"),
        *("-p", "no:cacheprovider", "-p", "hypothesispytest", "-p", "timeout"),
        *("-W", "error::pytest.PytestUnhandledThreadExceptionWarning"),
        # kip30 logs its retries and their reasons at this level: failed checks end with them.
        *("--tb=short", "-ra", "-o", "log_level=INFO"),
        *(f"--junitxml={folder / 'junit.xml'}", "-o", "junit_family=xunit1"),
        f"--hypothesis-seed={seed}",
        *("-o", f"timeout={_SECONDS_PER_CHECK}"),  # `Deadlines` scales it
    ]


def _spans(cases: Collection[str]) -> str:
    """Return the first and last case of each letter."""
    families = [list(family) for _, family in groupby(sorted(cases), key=itemgetter(0))]
    return ", ".join(f"{family[0]} to {family[-1]}" for family in families)


@contextmanager
def _prepared(plugin: Conformance) -> Generator[None]:
    with _no_settings(), _interrupted_by_signal(plugin):
        yield


@contextmanager
def _interrupted_by_signal(plugin: Conformance) -> Generator[None]:
    """Let *plugin* record Ctrl-C, unless the caller handles it."""
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        plugin.asked_to_end = True
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def _no_settings() -> Generator[None]:
    """Keep pytest from loading or doing anything that the environment asks for."""
    saved = {name: os.environ.pop(name, None) for name in _VARIABLES}
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    try:
        yield
    finally:
        for name, value in saved.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD")
