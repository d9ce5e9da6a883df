"""Runs the tests of one environment, and looks a second time at those that failed.

On a busy machine one test of thousands may come too late. It is run again alone, twice, when
everything else is over: a fault of the product fails again, and the run is red. A test that passes
both times is *unstable*; the run is green, names it, and keeps its first failure in
``.tox/unstable.jsonl``. No test is looked at twice if more than five tests failed, if a process of
the run died, or if a test marked ``safety`` failed: two leaders at once are never an accident.

``.tox/seconds`` keeps how long each test took.

Usage: ``python tests/gate/second_look.py ENVIRONMENT [ARGUMENT OF PYTEST ...]``
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

MOST_FAILURES = 5
LOOKS = 2

_TESTS_FAILED = 1
_RECORDS = Path(__file__).parents[2] / ".tox"

Outcomes = dict[str, Any]


class Verdict(NamedTuple):
    """Result of the tests of an environment.

    Attributes:
        status: The exit code of the run; 0 if it is green.
        unstable: The tests that failed first and passed alone, as the plugin wrote them.
        reason: Why there was no second look, or what it showed; empty if all tests passed.
    """

    status: int
    unstable: list[dict[str, Any]]
    reason: str


def main(environment: str, arguments: Sequence[str]) -> int:
    """Return the exit code: 0 if all tests passed, or passed in both second looks."""
    records = Path(os.environ.get("KIP30_GATE_RECORDS", _RECORDS))
    begun = time.monotonic()
    if "-n" in arguments:
        _compile(arguments)
    status, outcomes = _run(arguments)
    verdict = _verdict(status, outcomes)
    _keep_unstable(records, environment, verdict.unstable)
    _write_record(records, environment, outcomes, verdict, time.monotonic() - begun)
    _write_seconds(records, environment, outcomes)
    for one in verdict.unstable:
        print(f"{one['test']}: failed after {one['seconds']:.1f} s\n{one['message']}\n")
    if verdict.reason:
        print(f"{environment}: {verdict.reason}")
    print(f"unstable: {len(verdict.unstable)}", *(one["test"] for one in verdict.unstable))
    return verdict.status


def _compile(arguments: Sequence[str]) -> None:
    """Collect the tests once, which leaves them compiled, with their asserts rewritten.

    After an installation each process of xdist would compile all of them, at the same time.
    """
    words = [sys.executable, "-m", "pytest", *arguments, "-n", "0", "--collect-only", "-q"]
    subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _verdict(status: int, outcomes: Outcomes | None) -> Verdict:
    if status == 0:
        return Verdict(0, [], "")
    refusal = _refusal(status, outcomes)
    if refusal or outcomes is None:
        return Verdict(status, [], f"no second look: {refusal}")
    failed = outcomes["failed"]
    tests = [one["test"] for one in failed]
    for look in range(LOOKS):
        print(f"second look, {look + 1} of {LOOKS}: {len(tests)} tests alone", flush=True)
        again = _run(["-n", "0", *tests])[1]
        missing = set(tests).difference(again["passed"] if again else ())
        if missing:
            return Verdict(_TESTS_FAILED, [], f"failed again, alone: {', '.join(sorted(missing))}")
    return Verdict(0, failed, "green: what failed passed alone, twice")


def _refusal(status: int, outcomes: Outcomes | None) -> str:
    """Return why the failures of a run count without a second look; empty if they do not."""
    if outcomes is None or status != _TESTS_FAILED:
        return f"pytest ended with status {status}"
    if outcomes["crashes"]:
        return "; ".join(outcomes["crashes"])
    failed = outcomes["failed"]
    if not failed:
        return "pytest was ended early"
    if len(failed) > MOST_FAILURES:
        return f"{len(failed)} tests failed"
    convicting = [one["test"] for one in failed if one["safety"]]
    return f"a verdict about safety: {', '.join(convicting)}" if convicting else ""


def _run(arguments: Sequence[str]) -> tuple[int, Outcomes | None]:
    """Return the exit code of pytest, and what the plugin wrote; None if it wrote nothing."""
    with tempfile.TemporaryDirectory(prefix="kip30-outcomes-") as folder:
        file = Path(folder) / "outcomes.json"
        words = [sys.executable, "-m", "pytest", f"--outcomes={file}", *arguments]
        status = subprocess.run(words, check=False).returncode
        return status, json.loads(file.read_text()) if file.exists() else None


def _keep_unstable(records: Path, environment: str, unstable: list[dict[str, Any]]) -> None:
    records.mkdir(exist_ok=True)
    with (records / "unstable.jsonl").open("a") as file:
        for one in unstable:
            when = datetime.now(UTC).isoformat(timespec="seconds")
            file.write(json.dumps({"environment": environment, "when": when, **one}) + "\n")


def _write_record(
    records: Path, environment: str, outcomes: Outcomes | None, verdict: Verdict, seconds: float
) -> None:
    """Record the facts for this environment's line at the end of the gate; see ``toxfile.py``."""
    found = outcomes or {"passed": [], "skipped": 0, "failed": [], "time_scale": 0}
    record = {
        "tests": len(found["passed"]) + len(found["failed"]),
        "skipped": found["skipped"],
        "minutes": round(seconds / 60, 1),
        "unstable": [one["test"] for one in verdict.unstable],
        "time_scale": found["time_scale"],
    }
    folder = records / "gate"
    folder.mkdir(exist_ok=True)
    (folder / f"{environment}.json").write_text(json.dumps(record) + "\n")


def _write_seconds(records: Path, environment: str, outcomes: Outcomes | None) -> None:
    """Record the duration of each test of the run, with its setup; the slowest first."""
    seconds = (outcomes or {}).get("seconds", {})
    slowest_first = sorted(seconds, key=lambda test: (-seconds[test], test))
    folder = records / "seconds"
    folder.mkdir(exist_ok=True)
    lines = (f"{seconds[test]:.3f}\t{test}\n" for test in slowest_first)
    (folder / f"{environment}.tsv").write_text("".join(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
