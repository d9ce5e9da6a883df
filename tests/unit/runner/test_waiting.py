"""The time that a runner waits for a term or a share."""

import threading
import time
from collections.abc import Callable

import pytest

from kip30 import UnavailableError
from kip30.runner.interrupts import Interrupts
from kip30.runner.job import Ending, RunOutcome
from kip30.runner.retried_call import RetriedCall
from kip30.runner.waiting import Poller
from kip30_conformance.polling import eventually
from tests.unit.threads import no_threads


class Attempt:
    """An attempt that is answered at the given turn."""

    def __init__(self, answered_at: int, found: str | None) -> None:
        self.turns = 0
        self._answered_at = answered_at
        self._found = found

    def ask(self, _timeout: float) -> str | None:
        self.turns += 1
        return self._found if self.has_ended() else None

    def has_ended(self) -> bool:
        return self.turns >= self._answered_at


def waited(attempt: Attempt, seconds: float) -> str | RunOutcome | None:
    with Interrupts() as interrupts:
        poller = Poller(attempt.ask, interrupts, print, has_tried=attempt.has_ended)
        return poller.wait(seconds)


def test_a_wait_of_no_time_ends_with_the_first_answer_and_not_before() -> None:
    attempt = Attempt(answered_at=30, found=None)
    outcome = waited(attempt, 0.0)
    assert isinstance(outcome, RunOutcome)
    assert outcome.ending is Ending.WAITED
    assert attempt.turns == 30


def test_the_result_of_the_first_attempt_is_accepted_even_if_it_is_late() -> None:
    assert waited(Attempt(answered_at=30, found="term"), 0.0) == "term"


@pytest.mark.parametrize(
    "answer", [lambda: "opened", lambda: (_ for _ in ()).throw(UnavailableError)]
)
def test_an_attempt_has_ended_with_its_answer_or_error(answer: Callable[[], str]) -> None:
    call = RetriedCall(answer)
    assert not call.has_tried(100.0)
    try:
        while call.result(1.0) is None:
            pass
    except UnavailableError:
        pass
    assert call.has_tried(100.0)
    call.forget()
    assert not call.has_tried(100.0)


def test_an_outage_is_reported_once_and_the_next_one_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = list[str]()

    def ask(_timeout: float) -> str | None:
        raise UnavailableError("no answer")

    with Interrupts() as interrupts:
        poller = Poller(ask, interrupts, lines.append, has_tried=lambda: True)
        poller.ask()
        poller.ask()
        assert lines == ["waiting for the store: no answer"]
        later = time.monotonic() + 31
        monkeypatch.setattr(time, "monotonic", lambda: later)
        poller.ask()
    assert len(lines) == 2


def test_an_attempt_without_a_thread_to_spare_is_retried() -> None:
    call = RetriedCall(lambda: "opened")
    with no_threads(), pytest.raises(UnavailableError, match="no thread to spare"):
        call.result(1.0)
    assert eventually(lambda: call.result(1.0), what="the retry is answered") == "opened"


def test_an_attempt_that_lasts_is_one() -> None:
    answers = threading.Event()
    call = RetriedCall(answers.wait)
    assert not call.has_tried(0.0)
    assert call.result(0.01) is None
    assert call.has_tried(0.0)
    assert not call.has_tried(100.0)
    answers.set()
