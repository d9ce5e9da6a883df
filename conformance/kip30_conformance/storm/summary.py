"""The results of a storm, and the verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from typing_extensions import override

from kip30_conformance.storm.finding import Conclusion, Finding
from kip30_conformance.storm.storm_history import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A whole storm.

    Attributes:
        run: Store, version, seed and the like, each in words.
        findings: One for each invariant.
        faults: For each kind how often it was done, and how often it was observed.
        calls: For each kind of call the numbers by outcome.
        longest: For each kind of call the seconds that the longest one took.
        windows: All faults, in their order.
    """

    run: Mapping[str, str]
    findings: Sequence[Finding]
    faults: Mapping[str, tuple[int, int]]
    calls: Mapping[str, Mapping[str, int]]
    longest: Mapping[str, float]
    windows: Sequence[Window]

    @property
    def exit_code(self) -> int:
        """0 if every invariant held, 1 if one was violated, 3 if one was not tested."""
        conclusions = {finding.conclusion for finding in self.findings}
        if Conclusion.VIOLATION in conclusions:
            return 1
        return 3 if Conclusion.NO_EVIDENCE in conclusions or not conclusions else 0

    @property
    def verdict(self) -> str:
        """The exit code in words."""
        return {0: "passed", 1: "failed", 3: "no evidence"}[self.exit_code]

    @override
    def __str__(self) -> str:
        """Return the verdict, and the invariants that determine it."""
        bad = [
            f"{finding.invariant} {finding.conclusion.value}"
            for finding in self.findings
            if finding.conclusion is not Conclusion.OK
        ]
        done = sum(done for done, _ in self.faults.values())
        return f"{self.verdict}: {', '.join(bad) or 'every invariant held'}, {done} faults"

    def to_json(self) -> dict[str, Any]:
        """Return the report for machines."""
        findings = [
            {**asdict(finding), "conclusion": finding.conclusion.value} for finding in self.findings
        ]
        return {
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "run": dict(self.run),
            "findings": findings,
            "faults": {
                kind: {"done": done, "seen": seen} for kind, (done, seen) in self.faults.items()
            },
            "calls": {kind: dict(counts) for kind, counts in self.calls.items()},
            "longest_seconds": dict(self.longest),
            "windows": [_window(window) for window in self.windows],
        }


def _window(window: Window) -> dict[str, Any]:
    faults = [fault._asdict() for fault in window.faults]
    return {**window._asdict(), "faults": faults}
