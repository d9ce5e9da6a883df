from typing import Any

import pytest

from kip30.driver.records import Version
from kip30_conformance.storm.finding import Conclusion
from kip30_conformance.storm.listener_check import events_delivered
from kip30_conformance.storm.names import OBSERVED_KEY
from kip30_conformance.storm.storm_history import StormRecord

from .records import events, final, record, write


def after(what: str, **more: Any) -> StormRecord:
    """A sound record, but for one more event of a listener."""
    extra = {"what": what, "at": 1.0, **more}
    return record(journals={"c0.1": [*events(), extra], "c1.1": events()})


def test_all_delivered() -> None:
    assert events_delivered(record()).conclusion is Conclusion.OK


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (after("value event", value="a", version="1"), "delivered version 1 after 2"),
        (after("value event", value="b", version="2"), "delivered version 2 after 2"),
        (after("value event", value="z", version="3"), "delivered 'z' at 3"),
        (after("value event", value=None, version=None), "the final state is ('b', '2')"),
        (after("leader event", leader=["c0", 1]), "delivered epoch 1 after 2"),
        (after("leader event", leader=["c0", 2]), "notified that c0 leads in epoch 2"),
        (after("leader event", leader=None), "the final state is ['c1', 2]"),
        (after("keys event", now=[], added=[], removed=[]), "does not follow"),
        (after("keys event", now=["x"], added=["x"], removed=["set/k1"]), "phantom key x"),
        (after("members event", now=["c0"], added=[], removed=["c1"]), "the final state is"),
        (after("members event", now=["c0", "c1", "z"], added=["z"], removed=[]), "phantom member"),
    ],
)
def test_wrong_events(broken: StormRecord, why: str) -> None:
    assert any(why in violation for violation in events_delivered(broken).violations)


def test_a_value_under_another_version() -> None:
    operations = [write(OBSERVED_KEY, "a", 1), write(OBSERVED_KEY, "b", 9, at=2)]
    assert events_delivered(record(operations=operations)).conclusion is Conclusion.VIOLATION


def test_an_unanswered_write_is_no_phantom() -> None:
    operations = [write(OBSERVED_KEY, "a", 1), write(OBSERVED_KEY, "b", None, at=2)]
    assert events_delivered(record(operations=operations)).conclusion is Conclusion.OK


def test_the_last_one_is_missing() -> None:
    behind = record(final=final(values={OBSERVED_KEY: ("c", Version(3))}))
    assert len(events_delivered(behind).violations) == 2


def test_only_the_last_process_has_to_know_the_end() -> None:
    journals = {"c0.1": [], "c0.2": events(), "c1.1": events()}
    assert events_delivered(record(journals=journals)).conclusion is Conclusion.OK


def test_events_after_the_end_does_not_count() -> None:
    rows = [*events(), {"what": "leader event", "at": 9.0, "leader": None}]
    judged = record(journals={"c0.1": rows, "c1.1": rows}, final=final(until=5.0))
    assert events_delivered(judged).conclusion is Conclusion.OK


def test_silence_proves_nothing() -> None:
    judged = record(journals={"c0.1": [], "c1.1": []}, final=None)
    assert events_delivered(judged).conclusion is Conclusion.NO_EVIDENCE
