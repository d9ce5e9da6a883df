"""``kip30 conform``: the whole suite against the store that a configuration names.

It needs nothing but the configuration, works in namespaces of its own, and leaves the records it
made there in the store.
"""

import json
import os
import platform
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from kip30 import ConfigError, UnsupportedError, __version__
from kip30.config import CommonSettings, Properties, Written, build, effective, load
from kip30.config.extras import how_to_install
from kip30.driver import Backend, Capability
from kip30.runtime.resolution import Configuration, check
from kip30_conformance.cross_process_check import require_sharing
from kip30_conformance.harness import OPERATION_SECONDS, Harness
from kip30_conformance.polling import scaled_by, time_scale
from kip30_conformance.report.rendering import html, markdown
from kip30_conformance.report.results import Level, StoreUnderTest, Summary
from kip30_conformance.server_harness import ServerHarness
from kip30_conformance.servers import Ensemble

if TYPE_CHECKING:
    from kip30_conformance.plugin import Conformance

_NEEDS = ("pytest", "pytest_timeout", "hypothesis", "psutil")


class PropertiesHarness(Harness):
    """A store that is known by its configuration alone.

    The timeouts are those of the configuration, or short ones of the suite where it has none.
    """

    def __init__(self, properties: Properties) -> None:
        """Test the store that *properties* configure."""
        common = build(CommonSettings, properties)
        self._settings = {key: value.text for key, value in properties.items()}
        self._namespace = common.namespace
        if "plugin.session.timeout.ms" in properties:
            self.session_seconds = common.session_timeout_seconds
        self.operation_seconds = (
            common.operation_timeout_seconds
            if "plugin.operation.timeout.ms" in properties
            else min(OPERATION_SECONDS, self.session_seconds)
        )

    @override
    def settings(self) -> Mapping[str, Written]:
        return self._settings

    @override
    def unique_root(self) -> str:
        return f"{self._namespace}-{super().unique_root()}"


def run(
    config: Configuration,
    *,
    level: Level | str = Level.CORE,
    out_dir: Path | str = "conform-report",
    cases: Collection[str] = (),
    seed: int | None = None,
) -> Summary:
    """Run the suite against the store of *config*, and write reports to *out_dir*.

    Args:
        config: A properties file or a mapping of its keys; see `PluginLocator.startup`.
        level: How much to prove: ``core``, ``coordinator``, ``fault`` or ``scale``; each has
            those before it.
        out_dir: Gets ``report.json``, ``report.md``, ``report.html`` and ``junit.xml``.
        cases: Ids such as ``S03``, in any case; with any, only these run, of any level.
        seed: The seed of randomness; a run with the same one draws the same examples.

    Raises:
        ConfigError: A setting is wrong, a case is not known, *out_dir* is a file, or what the
            suite itself needs is not installed. Nothing was run.
        UnavailableError, AuthenticationError, StoreError: The store cannot be opened, or other
            processes do not see what is written to it. Nothing was run.
    """
    _require_needs()
    properties = config if isinstance(config, Properties) else load(config)
    # The harness passes the settings on as a mapping, which does not say where they come from.
    check(properties, load_plugins=True)
    return _run(PropertiesHarness(properties), level, out_dir, cases, seed)


def run_on(
    ensemble: Ensemble,
    *,
    level: Level | str = Level.CORE,
    out_dir: Path | str = "conform-report",
    cases: Collection[str] = (),
    seed: int | None = None,
) -> Summary:
    """Run the suite against the servers of *ensemble*; the rest is as in `run`.

    Here the faults of a network can be injected, and the servers stopped.
    """
    _require_needs()
    return _run(ServerHarness(ensemble), level, out_dir, cases, seed)


def _run(
    harness: Harness,
    level: Level | str,
    out_dir: Path | str,
    cases: Collection[str],
    seed: int | None,
) -> Summary:
    store = _described(harness)
    require_sharing(harness)
    seed = secrets.randbelow(2**32) if seed is None else seed
    started, begun = datetime.now(UTC), time.monotonic()
    # In a block, so that the factor that this run measures ends with it.
    with _folder(Path(out_dir)) as folder, scaled_by(time_scale()):
        ended = _ended(harness, Level(level), frozenset(map(str.upper, cases)), seed, folder)
        environment = {**_environment(), **_servers(harness)}
    summary = Summary(
        store=store,
        checks=ended.checks,
        level=Level(level),
        seed=seed,
        started=started.isoformat(timespec="seconds"),
        seconds=time.monotonic() - begun,
        environment=environment,
        interrupted=ended.interrupted,
    )
    _write(summary, folder)
    print(f"{summary}; reports in {folder}", file=sys.stderr)  # noqa: T201  the end of the progress
    if ended.interrupted:
        raise KeyboardInterrupt
    return summary


def _require_needs() -> None:
    missing = [name for name in _NEEDS if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the conformance suite needs {', '.join(missing)}; {how_to_install('conformance')}"
        )


@contextmanager
def _folder(path: Path) -> Generator[Path]:
    """Make the folder of the reports; a run that is refused does not leave it behind."""
    if path.is_file():
        raise ConfigError(f"{path} is a file: name a folder")
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    except ConfigError:
        if is_new:
            shutil.rmtree(path)
        raise


def _described(harness: Harness) -> StoreUnderTest:
    root = harness.unique_root()
    used = load(harness.properties(root))
    with harness.open(root) as client:
        backend = client.backend
        return StoreUnderTest(
            name=backend.name,
            description=dict(backend.describe()),
            settings=_settings(backend, used),
            capabilities={power.value: power in backend.capabilities for power in Capability},
            limits=asdict(backend.limits),
        )


def _settings(backend: Backend, used: Properties) -> dict[str, str]:
    """Return the settings in effect, the choice of the backend included if no setting names it."""
    common = dict(effective(CommonSettings, used))
    if not common["plugin.locator.classname"]:
        common["plugin.backend"] = backend.name
    return {**common, **effective(backend.settings_class, used)}


def _ended(
    harness: Harness, level: Level, cases: frozenset[str], seed: int, folder: Path
) -> "Conformance":
    """Run the checks to their end and return the results."""
    from kip30_conformance.pytest_run import execute  # noqa: PLC0415  needs what may be missing

    return execute(harness, level, cases, seed=seed, folder=folder)


def _environment() -> dict[str, str]:
    return {
        "kip30": __version__,
        "Python": platform.python_version(),
        "system": platform.platform(),
        "processors": str(os.cpu_count()),
        "time scale": f"{time_scale():g}",
        **_commit(),
    }


def _commit() -> dict[str, str]:
    """Return the commit of the code that runs, if it runs from a checkout."""
    try:
        # An environment inside a foreign checkout is not of that checkout's commit.
        _git("ls-files", "--error-unmatch", __file__)
        return {"commit": _git("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")}
    except (OSError, subprocess.CalledProcessError):
        return {}


def _git(*words: str) -> str:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    return ended.stdout.strip()


def _servers(harness: Harness) -> dict[str, str]:
    try:
        return {"nodes": str(len(harness.servers().nodes))}
    except UnsupportedError:
        return {}


def _write(summary: Summary, folder: Path) -> None:
    report = json.dumps(summary.to_json(), indent=1, ensure_ascii=False)
    for name, text in (
        ("report.json", report),
        ("report.md", markdown(summary)),
        ("report.html", html(summary)),
    ):
        (folder / name).write_text(text, encoding="utf-8")
