"""Plugin of tox: interpreters, servers built beside other work, and the last lines of a run.

* It finds the interpreters that only pyenv knows.
* The servers that the environments of a run need are installed from its beginning, in the
  background; an environment that needs one waits for it.
* A run ends with a line for each environment, and a run of the whole gate writes
  ``.tox/gate.json``.
* ``.tox/results`` keeps the last result of each environment, for
  ``tests/gate/full_set_table.py``.
"""

import atexit
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tox.execute import Outcome
from tox.plugin import impl
from tox.session.state import State
from tox.tox_env.api import ToxEnv

_ROOT = Path(__file__).parent
_RECORDS = _ROOT / ".tox"
_INSTALLER = "docker/install-servers"


def _find_interpreters_of_pyenv() -> None:
    """Look through the folders of all versions that pyenv has installed, after all others.

    pyenv's own ``python3.13`` works only where its user has selected that version.
    """
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    folders = map(str, sorted(root.glob("versions/3.*/bin")))
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), *folders])


class _Run:
    """One run of tox: which environments it has, and how those ended that are over."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._begun = self._last = time.monotonic()
        self._commit = _git("rev-parse", "HEAD")
        self._is_dirty = bool(_git("status", "--porcelain"))
        self._has_begun = False
        self._records: dict[str, dict[str, Any]] = {}
        self._installer: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Start to install all servers that an environment of this run needs; do that once."""
        if self._has_begun:
            return
        self._has_begun = True
        atexit.register(self.end)
        for name in self._names():  # A run that was killed may have left one.
            (_RECORDS / "gate" / f"{name}.json").unlink(missing_ok=True)
        servers = sorted({one for name in self._names() for one in self._servers_of(name)})
        if not servers:
            return
        _RECORDS.mkdir(exist_ok=True)
        with (_RECORDS / "servers.log").open("wb") as log:
            self._installer = subprocess.Popen(
                [sys.executable, _ROOT / _INSTALLER, *servers], cwd=_ROOT, stdout=log, stderr=log
            )

    def end_environment(self, name: str, exit_code: int) -> None:
        """Keep how the environment *name* ended, with what its tests left in a file."""
        file, now = _RECORDS / "gate" / f"{name}.json", time.monotonic()
        found = json.loads(file.read_text()) if file.exists() else {}
        file.unlink(missing_ok=True)
        minutes = round((now - self._last) / 60, 1)
        record = self._records[name] = {**found, "minutes": minutes, "is_green": exit_code == 0}
        self._last = now
        if self._state.conf.pos_args(None) is None:  # All of its tests ran.
            results = _RECORDS / "results"
            results.mkdir(parents=True, exist_ok=True)
            today = datetime.now(UTC).date().isoformat()
            origin = {"commit": self._commit, "dirty": self._is_dirty, "date": today}
            (results / f"{name}.json").write_text(json.dumps(origin | record) + "\n")

    def end(self) -> None:
        """Print a line for each environment; write the verdict if this was the whole gate."""
        if self._installer is not None:
            self._installer.terminate()
            self._installer.wait()
        for name, record in self._records.items():
            print(_line(name, record))
        gate = list(self._state.conf.core["env_list"])
        if not self._records or self._names() != gate:
            return
        is_green = all(self._records.get(name, {}).get("is_green") for name in gate)
        verdict = {
            "commit": self._commit,
            "dirty": self._is_dirty,
            "verdict": "green" if is_green else "red",
            "minutes": round((time.monotonic() - self._begun) / 60, 1),
            "unstable": [
                one for kept in self._records.values() for one in kept.get("unstable", [])
            ],
            "environments": self._records,
        }
        (_RECORDS / "gate.json").write_text(json.dumps(verdict, indent=2) + "\n")
        print(f"gate: {verdict['verdict']}, {verdict['minutes']} minutes")

    def _names(self) -> list[str]:
        return list(self._state.envs.iter())

    def _servers_of(self, name: str) -> list[str]:
        """Return the servers that an environment installs before its tests; see ``tox.ini``."""
        commands = [one.args for one in self._state.envs[name].conf["commands_pre"]]
        return [
            server
            for words in commands
            if _INSTALLER in words and "--recipes" not in words
            for server in words[words.index(_INSTALLER) + 1 :]
        ]


class _Current:
    """The run of this process, once tox has read its configuration."""

    run: _Run


@impl
def tox_add_core_config(core_conf: Any, state: State) -> None:
    """Keep what tox knows of this run."""
    del core_conf
    _Current.run = _Run(state)


@impl
def tox_on_install(tox_env: ToxEnv, arguments: Any, section: str, of_type: str) -> None:
    """Begin when the first environment is made."""
    del tox_env, arguments, section, of_type
    _Current.run.begin()


@impl
def tox_before_run_commands(tox_env: ToxEnv) -> None:
    """Begin also where nothing had to be installed."""
    del tox_env
    _Current.run.begin()


@impl
def tox_after_run_commands(tox_env: ToxEnv, exit_code: int, outcomes: list[Outcome]) -> None:
    """Keep how an environment ended."""
    del outcomes
    _Current.run.end_environment(tox_env.conf.name, exit_code)


def _line(name: str, record: dict[str, Any]) -> str:
    """Return what the last lines say about one environment."""
    parts = ["green" if record["is_green"] else "red", f"{record['minutes']} min"]
    if "tests" in record:
        parts += [
            f"{record['tests']} tests, {record['skipped']} skipped",
            f"unstable {len(record['unstable'])}",
            f"scale {record['time_scale']}",
        ]
    return f"{name + ':':15} {', '.join(parts)}"


def _git(*words: str) -> str:
    """Return what git prints; "" where there is no git, or no repository."""
    try:
        return subprocess.run(
            ["git", *words], cwd=_ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


_find_interpreters_of_pyenv()
