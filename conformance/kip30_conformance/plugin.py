"""The suite's part in pytest: which checks run, on what harness, and how each of them ended."""

import inspect
import time
from collections.abc import Collection, Generator
from dataclasses import replace

import pytest

from kip30_conformance.deadlines import Deadlines
from kip30_conformance.evidence import NoEvidenceError
from kip30_conformance.harness import Harness
from kip30_conformance.report.progress import Display
from kip30_conformance.report.results import Check, CheckOutcome, Level, case_id
from kip30_conformance.stall_detector import GAP_SECONDS, StallDetector

_MARKERS = (
    "fault: a case of the fault level, with kills, stops or cut connections",
    "coordinator: a case of the coordinator level",
    "heavy: a case of the scale level",
    "case(id): the contract cases a test stands for",
)


class Conformance:
    """A pytest plugin that runs the chosen checks on one harness and keeps their outcomes."""

    def __init__(
        self, harness: Harness, level: Level, cases: Collection[str], display: Display
    ) -> None:
        """Run *cases*, or all of *level* if there are none, and report to *display*."""
        self.checks: list[Check] = []
        self.known_cases: set[str] = set()
        self.interrupted = False
        self.asked_to_end = False
        self._stalls = StallDetector()
        self._begun = time.monotonic()
        self._harness = harness
        self._level = level
        self._cases = cases
        self._display = display

    @pytest.fixture(scope="session")
    def harness(self) -> Harness:
        """Return the harness of the store under test."""
        return self._harness

    def pytest_configure(self, config: pytest.Config) -> None:
        """Declare the markers of the suite, and let its deadlines follow the machine."""
        for marker in _MARKERS:
            config.addinivalue_line("markers", marker)
        config.pluginmanager.register(Deadlines(config))

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the chosen checks."""
        self.known_cases = {case_id(_function(item)) for item in items}
        can_start = self.known_cases.issuperset(self._cases)
        chosen = [item for item in items if can_start and self._is_chosen(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
        self._display.begin(len(items))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> None:
        """End here if an end was requested but lost, as happens to what a finalizer raises."""
        self._begun = time.monotonic()
        if self.asked_to_end:
            raise KeyboardInterrupt

    def pytest_keyboard_interrupt(self) -> None:
        """Record that the user wants the run to end."""
        self.interrupted = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a suite that cannot even be collected as a failure."""
        if report.failed:
            self._keep(_uncollected(report))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Convert the phase that decides about a check to its outcome."""
        report = yield
        if report.when == "call" or not report.passed:
            self._keep(_check(item, call, report, self._stalled_seconds()))
        elif report.when == "teardown":
            self.checks[-1] = replace(self.checks[-1], stalled_seconds=self._stalled_seconds())
        return report

    def pytest_unconfigure(self) -> None:
        """Stop all threads of this plugin."""
        self._stalls.close()

    def _stalled_seconds(self) -> float:
        """Return how long this process was stalled since the check began."""
        missed = self._stalls.stalled_seconds(self._begun)
        return missed if missed > GAP_SECONDS else 0.0

    def _is_chosen(self, item: pytest.Item) -> bool:
        if self._cases:
            return case_id(_function(item)) in self._cases
        return self._level.includes(_level(item))

    def _keep(self, check: Check) -> None:
        self.checks = [
            one for one in self.checks if (one.suite, one.name) != (check.suite, check.name)
        ]
        self.checks.append(check)
        self._display.show(check)


def _check(
    item: pytest.Item,
    call: pytest.CallInfo[None],
    report: pytest.TestReport,
    stalled_seconds: float,
) -> Check:
    return Check(
        case=case_id(_function(item)),
        name=item.name,
        suite=item.parent.name if item.parent is not None else "",
        about=inspect.getdoc(getattr(item, "obj", None)) or "",
        level=_level(item),
        outcome=_outcome(item, call, report),
        seconds=report.duration,
        detail=_detail(report),
        evidence=tuple(_evidence(item)),
        stalled_seconds=stalled_seconds,
    )


def _outcome(
    item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport
) -> CheckOutcome:
    if report.skipped:
        return CheckOutcome.SKIPPED
    if call.excinfo is not None and call.excinfo.errisinstance(NoEvidenceError):
        return CheckOutcome.NO_EVIDENCE
    if report.failed:
        return CheckOutcome.FAILED
    return CheckOutcome.PASSED if is_proven(item) else CheckOutcome.NO_EVIDENCE


def is_proven(item: pytest.Item) -> bool:
    """Return whether a check that passed has shown its faults, if it is about faults at all."""
    return item.get_closest_marker("fault") is None or bool(_evidence(item))


def _evidence(item: pytest.Item) -> list[str]:
    return [str(value) for name, value in item.user_properties if name == "evidence"]


def _detail(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        _, _, reason = report.longrepr
        return reason.removeprefix("Skipped: ")
    return str(report.longrepr or "")


def _uncollected(report: pytest.CollectReport) -> Check:
    return Check(
        case="",
        name=report.nodeid,
        suite="",
        about="The suite can be collected.",
        level=Level.CORE,
        outcome=CheckOutcome.FAILED,
        seconds=0.0,
        detail=str(report.longrepr),
    )


def _level(item: pytest.Item) -> Level:
    return Level.of({marker.name for marker in item.iter_markers()})


def _function(item: pytest.Item) -> str:
    return getattr(item, "originalname", None) or item.name
