"""The record of directives, and the rules by which candidates obey it."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kip30 import StoreError
from kip30.driver.clock import ManualClock
from kip30.driver.lease import Lease
from kip30.driver.records import Claim, Entry, Snapshot, Version
from kip30.runtime.directive_rules import DirectiveRules
from kip30.runtime.directives import (
    KEPT,
    Directives,
    ElectionPause,
    LoggedDirective,
    StepDown,
    TermId,
    decode_directives,
    encode_directives,
)

pytestmark = pytest.mark.small

NOW, DAY = 100.0, 1_800_000_000.0
HOLD = 30.0
PAUSE = ElectionPause("op", DAY, "", None)

_texts = st.text(max_size=20)
_times = st.floats(0, 4e9)
_pauses = st.builds(ElectionPause, _texts, _times, _texts, st.none() | _times)
_step_downs = st.builds(
    StepDown,
    _texts,
    _texts,
    _times,
    _texts,
    _times,
    _times,
    st.integers(0, 2**63),
    _texts,
    _texts,
    st.none() | _texts,
    _times,
    st.none() | st.builds(TermId, st.integers(0, 2**63), _texts),
)
_records = st.builds(
    Directives,
    st.integers(0),
    st.none() | _pauses,
    st.none() | _step_downs,
    st.lists(st.builds(LoggedDirective, st.integers(0), _times, _texts, _texts)).map(tuple),
    st.dictionaries(st.just("added later"), st.integers()),
)


@given(_records)
def test_a_record_is_read_as_it_was_written(directives: Directives) -> None:
    assert decode_directives("s", encode_directives(directives)) == directives


def test_the_log_keeps_the_latest_entries() -> None:
    directives = Directives()
    for _ in range(KEPT + 5):
        directives = directives.logged(DAY, "op", "pause")
    assert [entry.number for entry in directives.log] == [*range(6, KEPT + 6)]
    assert directives.number == KEPT + 5


def step_down(successor: str | None = None, **others: Any) -> StepDown:
    asked = StepDown("x", "op", DAY, "", 60.0, DAY + 3660, 5, "nonce5", "a", successor, HOLD)
    return asked._replace(**others)


def damaged(**fields: Any) -> bytes:
    directives = Directives(3, PAUSE, step_down())
    return json.dumps({**json.loads(encode_directives(directives)), **fields}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 100_000,
        damaged(format=2),
        damaged(number="3"),
        damaged(pause=[]),
        damaged(pause={"by": "op"}),
        damaged(pause={**PAUSE._asdict(), "until": "tomorrow"}),
        damaged(pause={**PAUSE._asdict(), "until": math.nan}),
        damaged(pause={**PAUSE._asdict(), "at": None}),
        damaged(step_down={}),
        damaged(step_down=7),
        damaged(step_down={**step_down()._asdict(), "fulfilled": "nonce6"}),
        damaged(step_down={**step_down()._asdict(), "fulfilled": {"nonce": "nonce6"}}),
        damaged(log=7),
        damaged(log=[7]),
    ],
    ids=range(18),
)
def test_a_damaged_record_is_an_error(data: bytes) -> None:
    with pytest.raises(StoreError, match="directives for 's' cannot be read"):
        decode_directives("s", data)


def led(candidate: str, epoch: int) -> Snapshot:
    return Snapshot(epoch, {candidate: Entry(Version(epoch), f"nonce{epoch}", b"")})


VACANT = Snapshot(9, {})


def rules(directives: Directives, *states: Snapshot | None, now: float = NOW) -> DirectiveRules:
    made = DirectiveRules()
    for state in states or (led("a", 5), VACANT):
        made.note(directives, state, now)
    return made


def allowed(made: DirectiveRules, *, now: float = NOW, day: float = DAY) -> set[str]:
    return {one for one in ("a", "b", "c") if not made.veto(one, now, day)}


def test_without_directives_all_may_lead() -> None:
    made = rules(Directives())
    assert allowed(made) == {"a", "b", "c"}
    assert made.due(NOW, DAY) == math.inf


def test_a_pause_holds_all_until_its_end() -> None:
    made = rules(Directives(pause=PAUSE._replace(until=DAY + 6)))
    assert made.due(NOW, DAY) == math.inf
    assert allowed(made) == set()
    assert made.due(NOW, DAY) == NOW + 6
    assert NOW < made.due(NOW, DAY + 7) < NOW + 1  # it ended after the judgement
    assert allowed(made, day=DAY + 6) == {"a", "b", "c"}
    assert made.due(NOW, DAY + 6) == math.inf


def test_a_time_of_day_is_looked_at_again_because_the_clock_may_be_corrected() -> None:
    made = rules(Directives(pause=PAUSE._replace(until=DAY + 3600)))
    assert allowed(made) == set()
    assert made.due(NOW, DAY) == NOW + 10


def test_a_leader_that_steps_down_holds_back_and_others_do_not() -> None:
    assert allowed(rules(Directives(step_down=step_down()))) == {"b", "c"}


def test_others_hold_back_for_a_successor() -> None:
    assert allowed(rules(Directives(step_down=step_down("b")))) == {"b"}


def test_the_hold_counts_from_the_vacancy() -> None:
    made = rules(Directives(step_down=step_down("b")), led("a", 5), now=NOW)
    made.note(Directives(step_down=step_down("b")), led("a", 5), NOW + 20)
    made.note(Directives(step_down=step_down("b")), VACANT, NOW + 21)
    assert allowed(made, now=NOW + 20 + HOLD - 1) == {"b"}
    assert made.due(NOW + 20 + HOLD - 1, DAY) == NOW + 20 + HOLD
    assert allowed(made, now=NOW + 20 + HOLD) == {"a", "b", "c"}


def test_the_hold_lasts_while_the_leader_is_not_known() -> None:
    made = rules(Directives(step_down=step_down("b")), None, now=NOW)
    made.note(Directives(step_down=step_down("b")), None, NOW + 2 * HOLD - 1)
    assert allowed(made, now=NOW + 2 * HOLD - 1) == {"b"}


def test_a_step_down_ends_by_the_clock_of_leases_from_when_it_was_seen() -> None:
    made = rules(Directives(step_down=step_down("b")), None, now=NOW)
    made.note(Directives(step_down=step_down("b")), None, NOW + 59)
    assert allowed(made, now=NOW + 59) == {"b"}
    assert allowed(made, now=NOW + 60) == {"a", "b", "c"}


def test_a_step_down_of_long_ago_holds_no_client_that_comes_later() -> None:
    made = rules(Directives(step_down=step_down("b")), VACANT)
    assert allowed(made, day=DAY + 3659) == {"b"}
    assert allowed(made, day=DAY + 3660) == {"a", "b", "c"}


@pytest.mark.parametrize(("successor", "leader"), [(None, "b"), ("b", "b")])
def test_a_later_term_of_the_right_candidate_fulfils_it(successor: str | None, leader: str) -> None:
    made = rules(Directives(step_down=step_down(successor)), VACANT, led(leader, 6), VACANT)
    assert allowed(made) == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("successor", "leader", "epoch"), [(None, "a", 6), ("b", "c", 6), ("b", "b", 4)]
)
def test_no_other_term_fulfils_it(successor: str | None, leader: str, epoch: int) -> None:
    made = rules(Directives(step_down=step_down(successor)), led(leader, epoch), VACANT)
    assert "a" not in allowed(made)


def test_another_step_down_begins_anew() -> None:
    made = rules(Directives(step_down=step_down("b")), led("b", 6), VACANT)
    made.note(Directives(step_down=step_down("c", id="y", epoch=6)), VACANT, NOW)
    assert allowed(made) == {"c"}


def test_a_successor_may_lead_under_a_pause_and_no_other() -> None:
    made = rules(Directives(pause=PAUSE, step_down=step_down("b")))
    assert allowed(made) == {"b"}
    assert made.names("b", NOW, DAY)
    assert not made.names("a", NOW, DAY)


@pytest.mark.parametrize("by_record", [True, False])
def test_the_term_that_has_fulfilled_it_may_begin_under_a_pause(*, by_record: bool) -> None:
    fulfilled = {"fulfilled": TermId(6, "nonce6")} if by_record else {}
    made = rules(
        Directives(pause=PAUSE, step_down=step_down("b", **fulfilled)), led("a", 5), led("b", 6)
    )
    assert allowed(made) == set()
    assert not made.veto("b", NOW, DAY, TermId(6, "nonce6"))
    assert made.veto("b", NOW, DAY, TermId(7, "nonce7"))
    assert made.veto("c", NOW, DAY, TermId(6, "nonce6"))


@pytest.mark.parametrize("by_record", [True, False])
def test_a_claim_repeated_after_its_lease_does_not_pass_a_pause(*, by_record: bool) -> None:
    """The store grants it again with its nonce, and a pause may have come in between."""
    fulfilled = {"fulfilled": TermId(6, "nonce6")} if by_record else {}
    made = rules(
        Directives(pause=PAUSE, step_down=step_down("b", **fulfilled)), led("a", 5), led("b", 6)
    )
    assert made.veto("b", NOW, DAY, TermId(7, "nonce6"))


def test_a_step_down_without_a_successor_exempts_no_term_from_a_pause() -> None:
    made = rules(
        Directives(pause=PAUSE, step_down=step_down(fulfilled=TermId(6, "nonce6"))), led("b", 6)
    )
    assert made.veto("b", NOW, DAY, TermId(6, "nonce6"))


@pytest.mark.parametrize(
    ("nonce", "epoch", "day", "is_asked"),
    [
        ("nonce5", 5, DAY, True),
        ("other", 5, DAY, False),
        ("nonce5", 6, DAY, False),
        ("nonce5", 5, DAY + 3660, False),
    ],
)
def test_a_step_down_ends_the_term_that_it_names(
    nonce: str, epoch: int, day: float, *, is_asked: bool
) -> None:
    lease = Lease(ManualClock(), sent_at=0.0, timeout_seconds=10.0, margin_seconds=1.0)
    claim = Claim("a", Entry(Version(epoch), nonce, b""), lease, 5)
    found = rules(Directives(step_down=step_down())).step_down_of(claim, NOW, day)
    assert (found is not None) is is_asked
