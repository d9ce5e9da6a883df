"""The results of a run of the suite, and its verdict."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from typing_extensions import override

FORMAT = 1
"""Grows when a reader of the JSON report has to know about a change."""

_CASE = re.compile(r"test_(?P<id>[A-Z]\d\d)_")


class Level(Enum):
    """Extent of the proof; each level includes those before it."""

    CORE = "core"
    COORDINATOR = "coordinator"
    FAULT = "fault"
    SCALE = "scale"

    def includes(self, other: "Level") -> bool:
        """Return whether a run at this level runs a check of level *other*."""
        levels = list(Level)
        return levels.index(other) <= levels.index(self)

    @classmethod
    def of(cls, markers: Collection[str]) -> "Level":
        """Return the level of a check that has these pytest markers."""
        if "heavy" in markers:
            return cls.SCALE
        if "fault" in markers:
            return cls.FAULT
        return cls.COORDINATOR if "coordinator" in markers else cls.CORE


class CheckOutcome(Enum):
    """Outcome of one check."""

    PASSED = "passed"
    FAILED = "failed"
    NO_EVIDENCE = "no evidence"
    SKIPPED = "skipped"


def case_id(function: str) -> str:
    """Return the stable id a check's name begins with, such as ``S03``; "" if it has none."""
    found = _CASE.match(function)
    return found["id"] if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check that ran, or was skipped.

    Attributes:
        case: Its stable id.
        name: Its name within the suite, parameters included.
        suite: The class it belongs to.
        about: The property that it proves.
        level: The level it belongs to.
        outcome: How it ended.
        seconds: How long it took.
        detail: Why it failed or was skipped.
        evidence: The proof that its faults did happen.
        stalled_seconds: How long the suite's own process was stalled meanwhile, stopped or for lack
            of a processor. A check that failed then may have failed for that reason.
    """

    case: str
    name: str
    suite: str
    about: str
    level: Level
    outcome: CheckOutcome
    seconds: float
    detail: str = ""
    evidence: tuple[str, ...] = ()
    stalled_seconds: float = 0.0

    @property
    def note(self) -> str:
        """A note about the machine that matters for this check; "" if there is none."""
        if not self.stalled_seconds:
            return ""
        return f"the suite's process was stalled for {self.stalled_seconds:.1f} s"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUnderTest:
    """The store under test, as it describes itself."""

    name: str
    description: Mapping[str, str]
    settings: Mapping[str, str]
    capabilities: Mapping[str, bool]
    limits: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A whole run, or one that was *interrupted*: checks are missing then.

    What has failed by then has failed.
    """

    store: StoreUnderTest
    checks: Sequence[Check]
    level: Level
    seed: int
    started: str
    seconds: float
    environment: Mapping[str, str]
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """0 if all passed, 1 if some failed, 3 if the run proves nothing or was interrupted."""
        outcomes = {check.outcome for check in self.checks}
        if CheckOutcome.FAILED in outcomes:
            return 1
        is_unproven = CheckOutcome.NO_EVIDENCE in outcomes or CheckOutcome.PASSED not in outcomes
        return 3 if is_unproven or self.interrupted else 0

    @property
    def verdict(self) -> str:
        """The exit code in words."""
        if self.interrupted and self.exit_code != 1:
            return "interrupted"
        passed = "passed, of what could be tested" if self.untested() else "passed"
        return {0: passed, 1: "failed", 3: "no evidence"}[self.exit_code]

    def failed_cases(self) -> Sequence[str]:
        """Return the ids of the cases with a check that failed or proved nothing."""
        bad = {CheckOutcome.FAILED, CheckOutcome.NO_EVIDENCE}
        return sorted({check.case for check in self.checks if check.outcome in bad and check.case})

    def untested(self) -> Mapping[str, int]:
        """Return how many checks were skipped, by reason; the most frequent reason is first."""
        skipped = (one.detail for one in self.checks if one.outcome is CheckOutcome.SKIPPED)
        return dict(Counter(skipped).most_common())

    def stalled(self) -> Sequence[Check]:
        """Return the checks during which the suite's process was stalled."""
        return [check for check in self.checks if check.stalled_seconds]

    @override
    def __str__(self) -> str:
        """Return the verdict, the number of checks by outcome, the untested ones, and stalls."""
        counts = [f"{number} {outcome.value}" for outcome, number in self.count().items()]
        head = f"{self.verdict}: {', '.join(counts) or 'nothing ran'} in {self.seconds:.0f} s"
        why = [f"{number} not tested: {reason}" for reason, number in self.untested().items()]
        return "; ".join([head, *why, *self._stalls()])

    def _stalls(self) -> Iterator[str]:
        if stalled := self.stalled():
            seconds = sum(check.stalled_seconds for check in stalled)
            yield (
                f"the suite's process was stalled for {seconds:.1f} s in all,"
                f" during {len(stalled)} checks"
            )

    def count(self, level: Level | None = None) -> Mapping[CheckOutcome, int]:
        """Return the number of checks by outcome, of *level* if given."""
        chosen = (check for check in self.checks if level in {None, check.level})
        return Counter(check.outcome for check in chosen)

    def proof_of(self, capability: str) -> str:
        """Return the result of the check that holds *capability* to its declaration."""
        name = f"test_G14_{capability.replace('-', '_')}"
        outcomes = [check.outcome.value for check in self.checks if check.name == name]
        return outcomes[0] if outcomes else "not run"

    def to_json(self) -> dict[str, Any]:
        """Return the report for machines."""
        return {
            "format": FORMAT,
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "interrupted": self.interrupted,
            "level": self.level.value,
            "seed": self.seed,
            "started": self.started,
            "seconds": round(self.seconds, 3),
            "environment": dict(self.environment),
            "store": asdict(self.store),
            "counts": _named(self.count()),
            "untested": dict(self.untested()),
            "stalled_seconds": round(sum(check.stalled_seconds for check in self.checks), 3),
            "levels": {level.value: _named(self.count(level)) for level in Level},
            "capabilities": [
                {"name": name, "declared": declared, "outcome": self.proof_of(name)}
                for name, declared in self.store.capabilities.items()
            ],
            "checks": [_check(check) for check in self.checks],
        }


def _named(counts: Mapping[CheckOutcome, int]) -> dict[str, int]:
    return {outcome.value: counts.get(outcome, 0) for outcome in CheckOutcome}


def _check(check: Check) -> dict[str, Any]:
    enums = {"level": check.level.value, "outcome": check.outcome.value}
    times = {name: round(getattr(check, name), 3) for name in ("seconds", "stalled_seconds")}
    return {**asdict(check), **enums, **times}
