"""The judges of directives, on records made by hand."""

from typing import Any

import pytest

from kip30_conformance.storm.directive_check import (
    one_directed_holder,
    pauses_hold,
    step_downs_are_obeyed,
)
from kip30_conformance.storm.finding import Conclusion, Finding
from kip30_conformance.storm.process_journal import Row
from kip30_conformance.storm.storm_history import StormRecord, Term

from .records import final, row

PAUSED = Term(1, 0.0, 12.0, "c0.1")


def directive(number: int, action: str, called: float, **more: Any) -> list[Row]:
    """The rows of a directive that took a second; of one without *more*, whose process died."""
    sent = {"number": number, "action": action, "called": called, "seconds": 6.0}
    given = {name: more[name] for name in ("epoch", "successor") if name in more}
    rows = [row("directs", called, **sent, **given)]
    if more:
        shown = {"returned": called + 1, "error": "", **more}
        rows.append(row("directed", called + 1, **sent, **shown))
    return rows


def pause(number: int, called: float, epoch: int | None = 1) -> list[Row]:
    read = {"called": called + 1, "returned": called + 1.5, "epoch": epoch}
    return directive(number, "pause", called, record=number, leader="c0", led_epoch=1, read=read)


def done(number: int, called: float, epoch: int, **more: Any) -> list[Row]:
    led = {"leader": "c1", "led_epoch": epoch + 1, "record": number, **more}
    return directive(number, "step-down", called, epoch=epoch, **led)


def judged(judge: Any, terms: list[Term], *rows: list[Row], **more: Any) -> Finding:
    journals = {f"c{number}.1": one for number, one in enumerate(rows)}
    found: Finding = judge(StormRecord(journals=journals, directed_terms=terms, **more))
    return found


def test_leaders_one_after_the_other_are_sound() -> None:
    terms = [PAUSED, Term(2, 12.0, 15.0, "c1.1")]
    assert judged(one_directed_holder, terms).conclusion is Conclusion.OK


def test_two_leaders_at_once() -> None:
    terms = [PAUSED, Term(2, 11.0, 15.0, "c1.1")]
    assert judged(one_directed_holder, terms).conclusion is Conclusion.VIOLATION


def test_a_pause_that_holds() -> None:
    found = judged(pauses_hold, [PAUSED, Term(2, 16.5, 20.0, "c1.1")], pause(1, 10.0))
    assert (found.conclusion, found.seen) == (Conclusion.OK, "1 pauses, which stood for 4 s")


@pytest.mark.parametrize("epoch", [1, None])
def test_a_term_that_begins_under_a_pause(epoch: int | None) -> None:
    terms = [PAUSED, Term(2, 14.0, 20.0, "c1.1")]
    (broken,) = judged(pauses_hold, terms, pause(1, 10.0, epoch)).violations
    assert broken.startswith("c1.1 led epoch 2 from 14.000, under the pause of 11.500 to 16.000")


def test_a_term_that_was_granted_before_is_none() -> None:
    terms = [PAUSED, Term(2, 14.0, 20.0, "c1.1")]
    assert judged(pauses_hold, terms, pause(1, 10.0, epoch=2)).conclusion is Conclusion.OK


@pytest.mark.parametrize("action", ["pause", "resume"])
def test_a_later_directive_ends_what_is_certain(action: str) -> None:
    terms = [PAUSED, Term(2, 14.0, 20.0, "c1.1")]
    later = directive(1, action, 13.0, record=2)
    assert judged(pauses_hold, terms, pause(1, 10.0), later).conclusion is Conclusion.OK


@pytest.mark.parametrize("more", [{}, {"error": "OutcomeUnknownError"}])
def test_nothing_is_certain_after_a_resumption_without_an_answer(more: dict[str, Any]) -> None:
    terms = [PAUSED, Term(2, 14.0, 20.0, "c1.1")]
    found = judged(pauses_hold, terms, pause(1, 10.0), directive(1, "resume", 2.0, **more))
    assert found.conclusion is Conclusion.NO_EVIDENCE


def test_a_refused_resumption_changes_nothing() -> None:
    terms = [PAUSED, Term(2, 14.0, 20.0, "c1.1")]
    refused = directive(1, "resume", 2.0, error="UnavailableError")
    assert judged(pauses_hold, terms, pause(1, 10.0), refused).violations


def test_a_named_successor_may_lead_under_a_pause() -> None:
    terms = [PAUSED, Term(2, 14.0, 20.0, "c1.1")]
    named = done(1, 13.0, 1, successor="c1")
    assert judged(pauses_hold, terms, pause(1, 10.0), named).conclusion is Conclusion.OK


@pytest.mark.parametrize(
    "more",
    [
        {"successor": "c2"},
        {"successor": "c1", "led_epoch": 3},
        {"successor": None},
        {"successor": "c1", "error": "DirectiveRefusedError"},
    ],
)
def test_no_other_term_may_begin_under_it(more: dict[str, Any]) -> None:
    terms = [PAUSED, Term(2, 14.0, 20.0, "c1.1")]
    named = done(1, 13.0, 1, **more)
    if "error" in more:
        named[1].pop("record")
    assert judged(pauses_hold, terms, pause(1, 10.0), named).violations


def test_a_hand_over_without_an_answer_may_still_stand() -> None:
    terms = [PAUSED, Term(2, 14.0, 20.0, "c1.1")]
    named = [row("directs", 13.0, number=1, action="step-down", called=13.0, successor="c1")]
    assert judged(pauses_hold, terms, pause(1, 10.0), named).conclusion is Conclusion.OK


def test_without_a_pause_there_is_no_evidence() -> None:
    assert judged(pauses_hold, [PAUSED]).conclusion is Conclusion.NO_EVIDENCE


def test_a_step_down_that_is_obeyed() -> None:
    terms = [Term(1, 0.0, 10.5, "c0.1"), Term(2, 10.6, 20.0, "c1.1")]
    found = judged(step_downs_are_obeyed, terms, done(1, 10.0, 1))
    assert found.conclusion is Conclusion.OK
    assert found.seen == "1 directives; 1 step-downs were acknowledged"


def test_a_term_that_outlasts_its_acknowledged_end() -> None:
    terms = [Term(1, 0.0, 11.5, "c0.1")]
    (broken,) = judged(step_downs_are_obeyed, terms, done(1, 10.0, 1)).violations
    assert broken.startswith("c0.1 led epoch 1 until 11.500")


def test_a_hand_over_to_another_than_named() -> None:
    terms = [Term(2, 10.6, 20.0, "c1.1")]
    assert judged(step_downs_are_obeyed, terms, done(1, 10.0, 1, successor="c2")).violations


def test_a_record_that_was_overwritten() -> None:
    rows = (done(7, 10.0, 1), done(6, 12.0, 2))
    (broken,) = judged(step_downs_are_obeyed, [], *rows).violations
    assert broken == "record 6 read at 12.000 although 7 had been read before"


def test_two_pauses_that_wrote_one_record() -> None:
    rows = (pause(7, 10.0), pause(7, 10.5), directive(1, "resume", 12.0, record=7))
    assert judged(step_downs_are_obeyed, [], *rows).violations == [
        "record 7 was written by 2 pauses"
    ]


def test_no_candidate_leads_at_the_end() -> None:
    (broken,) = judged(step_downs_are_obeyed, [], done(1, 10.0, 1), final=final()).violations
    assert broken.startswith("no candidate leads at the end")
    led = final(directed_leader="c1")
    assert not judged(step_downs_are_obeyed, [], done(1, 10.0, 1), final=led).violations


def test_without_a_step_down_there_is_no_evidence() -> None:
    found = judged(step_downs_are_obeyed, [], directive(1, "resume", 1.0, record=1))
    assert found.conclusion is Conclusion.NO_EVIDENCE
