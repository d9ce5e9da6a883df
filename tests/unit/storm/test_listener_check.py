from typing import Any

import pytest

from kip30.driver.records import Version
from kip30_conformance.storm.finding import Conclusion
from kip30_conformance.storm.listener_check import listeners_told
from kip30_conformance.storm.names import TOLD_KEY
from kip30_conformance.storm.record import Record

from .records import final, record, told, write


def after(what: str, **more: Any) -> Record:
    """A sound record, but for what one listener was told on top."""
    extra = {"what": what, "at": 1.0, **more}
    return record(journals={"c0.1": [*told(), extra], "c1.1": told()})


def test_told_all() -> None:
    assert listeners_told(record()).conclusion is Conclusion.OK


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (after("told value", value="a", version="1"), "told version 1 after 2"),
        (after("told value", value="b", version="2"), "told version 2 after 2"),
        (after("told value", value="z", version="3"), "told 'z' at 3"),
        (after("told value", value=None, version=None), "the final state is ('b', '2')"),
        (after("told leader", leader=["c0", 1]), "told epoch 1 after 2"),
        (after("told leader", leader=["c0", 2]), "told that c0 leads in epoch 2"),
        (after("told leader", leader=None), "the final state is ['c1', 2]"),
        (after("told keys", now=[], added=[], removed=[]), "does not follow"),
        (after("told keys", now=["x"], added=["x"], removed=["set/k1"]), "phantom key x"),
        (after("told members", now=["c0"], added=[], removed=["c1"]), "the final state is"),
        (after("told members", now=["c0", "c1", "z"], added=["z"], removed=[]), "phantom member"),
    ],
)
def test_told_wrong(broken: Record, why: str) -> None:
    assert any(why in violation for violation in listeners_told(broken).violations)


def test_a_value_under_another_version() -> None:
    operations = [write(TOLD_KEY, "a", 1), write(TOLD_KEY, "b", 9, at=2)]
    assert listeners_told(record(operations=operations)).conclusion is Conclusion.VIOLATION


def test_an_unanswered_write_is_no_phantom() -> None:
    operations = [write(TOLD_KEY, "a", 1), write(TOLD_KEY, "b", None, at=2)]
    assert listeners_told(record(operations=operations)).conclusion is Conclusion.OK


def test_the_last_one_is_missing() -> None:
    behind = record(final=final(values={TOLD_KEY: ("c", Version(3))}))
    assert len(listeners_told(behind).violations) == 2


def test_only_the_last_process_has_to_know_the_end() -> None:
    journals = {"c0.1": [], "c0.2": told(), "c1.1": told()}
    assert listeners_told(record(journals=journals)).conclusion is Conclusion.OK


def test_what_is_told_after_the_end_does_not_count() -> None:
    rows = [*told(), {"what": "told leader", "at": 9.0, "leader": None}]
    judged = record(journals={"c0.1": rows, "c1.1": rows}, final=final(until=5.0))
    assert listeners_told(judged).conclusion is Conclusion.OK


def test_silence_proves_nothing() -> None:
    judged = record(journals={"c0.1": [], "c1.1": []}, final=None)
    assert listeners_told(judged).conclusion is Conclusion.NO_EVIDENCE
