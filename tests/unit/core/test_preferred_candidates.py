"""Candidates with priorities: which one leads at a vacancy, and what delays it."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from kip30 import (
    BYTES,
    AuthenticationError,
    ConfigError,
    LeaderElection,
    Leadership,
    NotElectedError,
    PluginLocator,
    UsageError,
)
from kip30.driver.kit.futures import failed
from kip30.driver.records import Kind, Snapshot, Target
from kip30.names import MAX_NAME_BYTES
from kip30.operations import step_down_leader
from kip30.runtime.candidate_line import encode_place, line_group, preferred_group
from kip30.runtime.priority_rules import PRIORITY_TURN_SECONDS, PriorityRules
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.driver_faults import wrap
from kip30_conformance.polling import eventually, throughout, time_scale

from .conftest import OpenClient
from .trouble import faults, has_arrived

pytestmark = pytest.mark.virtual_time

OBEYS: Mapping[str, Any] = {"plugin.operations": True}
PREFERRED = preferred_group("s")
Nominate = Callable[..., "Standing"]


class Standing:
    """A client with one candidate for the service "s".

    Attributes:
        elected: Its terms.
        claims: The requests for them since `forget_claims`.
    """

    def __init__(self, client: PluginLocator, candidate: str, priority: int | None) -> None:
        self.client = client
        self.candidate = candidate
        self.elected = Recorder[Leadership]()
        self.claims: list[object] = []
        wrap(client.backend.election, "claim", self._claim)
        self.election: LeaderElection[str] = client.leader_election("s")
        self.election.nominate(candidate, "", on_elected=self.elected, priority=priority)

    def _claim(self, real: Callable[..., Future[Any]], *given: object) -> Future[Any]:
        self.claims.append(given)
        return real(*given)

    def leads(self) -> bool:
        return self.election.leadership(self.candidate) is not None

    def resign(self) -> None:
        self.election.resign(self.candidate)

    def expect(self) -> Leadership:
        return eventually(
            lambda: self.election.leadership(self.candidate), what=f"{self.candidate} leads"
        )


@pytest.fixture
def observer(open_client: OpenClient) -> PluginLocator:
    return open_client()


@pytest.fixture
def nominate(open_client: OpenClient, observer: PluginLocator) -> Nominate:
    """Return what nominates a candidate of a new client, and waits until it leads or waits."""

    def nominated(candidate: str, priority: int | None = None, **more: Any) -> Standing:
        waiting = len(in_line(observer))
        one = Standing(open_client(**{**OBEYS, **more}), candidate, priority)
        if not one.leads():
            eventually(lambda: len(in_line(observer)) > waiting, what="it is in the line")
        if priority and not one.leads():
            eventually(lambda: preferred(observer), what="it is a preferred candidate")
        return one

    return nominated


def in_line(client: PluginLocator) -> list[str]:
    return list(client.group_membership(line_group("s"), BYTES).membership())


def preferred(client: PluginLocator) -> list[str]:
    return list(client.group_membership(PREFERRED, BYTES).membership())


def shows_leader(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and bool(snapshot.entries)


def join_stopped(client: PluginLocator, priority: int, member: str = "stopped") -> None:
    """Let a candidate wait that never claims, and whose session goes on."""
    data = encode_place(member, priority)
    client.group_membership(PREFERRED, BYTES).join(member, data)


def claims_late(one: Standing) -> None:
    """Let *one* claim when others that do not wait for it have claimed, and well in its turn."""

    def claim(real: Callable[..., Future[Any]], *given: object) -> Future[Any]:
        time.sleep(PRIORITY_TURN_SECONDS / 4)
        return real(*given)

    wrap(one.client.backend.election, "claim", claim)


# -- which one leads


def test_the_highest_priority_leads_at_a_vacancy_and_no_other_is_notified(
    nominate: Nominate, observer: PluginLocator
) -> None:
    leader, low = nominate("leader"), nominate("low")
    middle = nominate("middle", 5)
    best = nominate("best", 10)
    eventually(lambda: len(preferred(observer)) == 2)
    leader.resign()
    best.expect()
    best.resign()
    middle.expect()
    assert not low.elected.events
    middle.resign()
    low.expect()


def test_without_priorities_the_line_decides(nominate: Nominate) -> None:
    leader, first, second = (nominate(name) for name in ("leader", "first", "second"))
    leader.resign()
    first.expect()
    assert not second.elected.events


@pytest.mark.parametrize("priority", [7, 100])
def test_of_equal_priorities_the_line_decides(
    nominate: Nominate, observer: PluginLocator, priority: int
) -> None:
    leader, low = nominate("leader"), nominate("low")
    candidates = [nominate(name, priority) for name in ("first", "second", "third")]
    eventually(lambda: len(preferred(observer)) == 3)
    leader.resign()
    for one in candidates:
        one.expect()
        assert not low.elected.events
        one.resign()
    low.expect()


def test_the_last_of_a_long_line_leads_if_it_has_the_highest_priority(nominate: Nominate) -> None:
    leader, *_ = (nominate(str(number)) for number in range(6))
    best = nominate("best", 1)
    leader.resign()
    best.expect()


def test_a_leader_is_not_replaced_by_a_better_candidate(
    nominate: Nominate, observer: PluginLocator
) -> None:
    leader, best = nominate("leader"), nominate("best", 100)
    eventually(lambda: preferred(observer))
    throughout(leader.leads, seconds=3)
    assert not best.elected.events


def test_a_setting_is_the_priority_of_nominations_without_one(nominate: Nominate) -> None:
    leader, low = nominate("leader"), nominate("low")
    by_setting = nominate("by setting", **{"plugin.priority": 3})
    lower = nominate("lower", 0, **{"plugin.priority": 9})
    leader.resign()
    by_setting.expect()
    assert not low.elected.events
    assert not lower.elected.events


def test_the_candidates_of_one_client_lead_by_their_priorities(nominate: Nominate) -> None:
    leader, many = nominate("leader"), nominate("many")
    many.election.nominate("higher", "", priority=9)
    other = nominate("other", 5)
    leader.resign()
    eventually(lambda: many.election.leadership("higher"))
    many.election.resign("higher")
    other.expect()
    other.resign()
    many.expect()


def test_a_new_nomination_leaves_a_vacant_service_to_a_better_one(
    nominate: Nominate, open_client: OpenClient, observer: PluginLocator
) -> None:
    """Its first claim is granted, and given back before the program learns of it."""
    join_stopped(observer, 5)
    new = nominate("new")
    new.expect()
    assert len(new.claims) == 2
    new.resign()
    other = open_client(**OBEYS).leader_election("s")
    with pytest.raises(NotElectedError), other.lead("other", "", timeout_seconds=0):
        pass


def test_one_that_has_seen_a_better_one_does_not_claim_before_it(
    nominate: Nominate, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kip30.terms")
    leader = nominate("leader")
    best, low = nominate("best", 5), nominate("low")
    eventually(lambda: low.election._campaign._preferred._rules._others)
    claims_late(best)
    leader.resign()
    best.expect()
    assert "is given back" not in caplog.text
    best.resign()
    low.expect()


# -- directives


def test_a_successor_leads_before_a_higher_priority(
    nominate: Nominate, observer: PluginLocator
) -> None:
    nominate("leader")
    best, low = nominate("best", 5), nominate("low")
    assert step_down_leader(observer, "s", successor="low").leader == "low"
    assert low.expect().candidate == "low"
    assert not best.elected.events


def test_the_second_best_follows_the_best_that_steps_down(
    nominate: Nominate, observer: PluginLocator, caplog: pytest.LogCaptureFixture
) -> None:
    """No other claim is granted meanwhile, which the operator would take for the next term."""
    caplog.set_level(logging.INFO, "kip30.terms")
    best = nominate("best", 9)
    low, second = nominate("low"), nominate("second", 5)
    claims_late(second)
    assert step_down_leader(observer, "s").leader == "second"
    second.expect()
    assert "is given back" not in caplog.text
    assert not low.elected.events
    throughout(second.leads, seconds=2)
    assert len(best.elected.events) == 1
    assert step_down_leader(observer, "s").leader == "best"


@pytest.fixture
def turns_left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the priorities with which candidates leave a turn to others, in the order of that."""
    left, leave_turn = list[int](), PriorityRules.leave_turn

    def note(rules: PriorityRules, priority: int, now: float) -> None:
        left.append(priority)
        leave_turn(rules, priority, now)

    monkeypatch.setattr(PriorityRules, "leave_turn", note)
    return left


def test_one_that_may_not_lead_gets_no_turn(
    nominate: Nominate, observer: PluginLocator, turns_left: list[int]
) -> None:
    """It has stepped down, and waits again when the next one has claimed and looks."""
    best, low = nominate("best", 9), nominate("low")

    def claim(real: Callable[..., Future[Any]], *given: object) -> Future[Any]:
        granted = real(*given)
        eventually(lambda: shows_leader(low.election._campaign._watch.latest()))
        return granted

    wrap(low.client.backend.election, "claim", claim)
    step_down_leader(observer, "s")
    low.expect()
    eventually(lambda: preferred(observer))
    assert turns_left == []
    assert len(best.elected.events) == 1


# -- candidates that do not claim


@pytest.mark.parametrize("number", [1, 4])
def test_a_stopped_one_of_the_highest_priority_delays_the_others_once(
    nominate: Nominate, observer: PluginLocator, number: int
) -> None:
    leader, *others = (nominate(str(name)) for name in range(number + 1))
    join_stopped(observer, 100)
    for one in others:
        one.claims.clear()
    leader.resign()
    eventually(lambda: any(one.leads() for one in others))
    assert preferred(observer) == ["stopped"]
    assert all(len(one.claims) <= 3 for one in others)


def test_a_turn_begins_when_the_claim_is_given_back(
    nominate: Nominate, observer: PluginLocator
) -> None:
    """Not when that is decided: the store may be slow."""
    leader, low = nominate("leader"), nominate("low")
    join_stopped(observer, 9)
    clock, released, claimed = low.client.context.clock, list[float](), list[float]()

    def release(real: Callable[..., Future[Any]], *given: object) -> Future[Any]:
        time.sleep(2 * PRIORITY_TURN_SECONDS)
        answer = real(*given)
        released.append(clock.now())
        return answer

    def claim(real: Callable[..., Future[Any]], *given: object) -> Future[Any]:
        claimed.append(clock.now())
        return real(*given)

    wrap(low.client.backend.election, "release", release)
    wrap(low.client.backend.election, "claim", claim)
    leader.resign()
    low.expect()
    assert claimed[1] - released[0] >= PRIORITY_TURN_SECONDS


def test_the_next_priority_follows_stopped_ones(
    nominate: Nominate, observer: PluginLocator
) -> None:
    leader, low = nominate("leader"), nominate("low")
    middle = nominate("middle", 5)
    join_stopped(observer, 100)
    join_stopped(observer, 99, "another")
    leader.resign()
    middle.expect()
    assert not low.elected.events


def test_one_that_was_stopped_leads_at_a_later_vacancy(
    nominate: Nominate, observer: PluginLocator
) -> None:
    leader, low = nominate("leader"), nominate("low")
    join_stopped(observer, 50)
    leader.resign()
    low.expect()
    best = nominate("best", 50)
    low.resign()
    best.expect()


def test_a_lost_session_loses_the_place_and_not_the_priority(
    nominate: Nominate, observer: PluginLocator
) -> None:
    leader, low = nominate("leader"), nominate("low")
    best = nominate("best", 5)
    (place,) = preferred(observer)
    faults(best.client).expire_session()
    eventually(lambda: preferred(observer) not in ([], [place]))
    leader.resign()
    best.expect()
    assert not low.elected.events


# -- places


def test_only_waiting_candidates_with_a_priority_have_a_place(
    nominate: Nominate, observer: PluginLocator
) -> None:
    leader, best = nominate("leader", 1), nominate("best", 5)
    low = nominate("low", 0)
    eventually(lambda: len(preferred(observer)) == 1)
    leader.resign()
    best.expect()
    eventually(lambda: preferred(observer) == [])
    best.resign()
    low.expect()
    assert preferred(observer) == []


def test_a_place_has_the_highest_priority_of_its_client(
    nominate: Nominate, observer: PluginLocator
) -> None:
    def priorities() -> list[bytes]:
        members = observer.group_membership(PREFERRED, BYTES).membership()
        return [data.rpartition(b" ")[2] for data in members.values()]

    nominate("leader")
    one = nominate("one", 5)
    one.election.nominate("two", "", priority=8)
    eventually(lambda: priorities() == [b"8}"])
    one.election.resign("two")
    eventually(lambda: priorities() == [b"5}"])
    one.resign()
    eventually(lambda: priorities() == [])


def test_a_place_that_is_not_left_yet_is_no_other_candidate(
    nominate: Nominate, observer: PluginLocator, turns_left: list[int]
) -> None:
    leader, one = nominate("leader"), nominate("one")
    one.election.nominate("higher", "", priority=9)
    eventually(lambda: preferred(observer))
    faults(one.client).fail("membership.release", times=None)
    one.election.resign("higher")
    leader.resign()
    one.expect()
    assert preferred(observer)
    assert turns_left == []


def test_a_request_for_a_place_that_arrives_after_the_close_leaves_no_place_behind(
    open_client: OpenClient, observer: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is on a store without a line, too."""
    monkeypatch.setattr(type(observer.backend.election), "forms_line", False)
    open_client().leader_election("s").nominate("leader", "")
    client = open_client(**OBEYS)
    faults(client).arrive_late("membership.claim", 2.0 * time_scale())
    waits = Standing(client, "waits", 5)
    eventually(lambda: preferred(observer))
    waits.election.close()
    eventually(lambda: preferred(observer) == [])
    assert not has_arrived()
    eventually(has_arrived)
    eventually(lambda: preferred(observer) == [])


@pytest.mark.parametrize("times", [1, 3])
def test_lost_answers_leave_no_place_behind(
    nominate: Nominate, open_client: OpenClient, observer: PluginLocator, times: int
) -> None:
    nominate("leader")
    client = open_client(**OBEYS)
    faults(client).lose_answers("membership.claim", times=times)
    waits = Standing(client, "waits", 5)
    eventually(lambda: faults(client).counted() == times)
    eventually(lambda: len(preferred(observer)) == 1)
    waits.resign()
    eventually(lambda: preferred(observer) == [])
    eventually(lambda: in_line(observer) == [])


# -- a group that cannot be read


def answered(
    client: PluginLocator, answer: Callable[[Future[Snapshot]], Future[Any]]
) -> threading.Event:
    """Give *answer* to each read of the group; the event is set by the first."""
    asked = threading.Event()

    def snapshot(real: Callable[..., Future[Any]], target: Target) -> Future[Any]:
        if target != Target(Kind.GROUP, PREFERRED):
            return real(target)
        asked.set()
        return answer(real(target))

    wrap(client.backend.observe, "snapshot", snapshot)
    return asked


def test_a_group_that_is_forbidden_means_no_priorities(
    nominate: Nominate, observer: PluginLocator, caplog: pytest.LogCaptureFixture
) -> None:
    leader, low = nominate("leader"), nominate("low")
    join_stopped(observer, 5)
    refused = AuthenticationError("no permission to read kip30.preferred")
    asked = answered(low.client, lambda _: failed(refused))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            leader.resign()
            low.expect()
            leader.election.nominate("leader", "")
            low.resign()
            leader.expect()
            low.election.nominate("low", "")
    assert asked.is_set()
    assert caplog.text.count("may have no effect: no permission") == 1


def test_a_group_that_cannot_be_joined_means_no_priority(
    nominate: Nominate, open_client: OpenClient, caplog: pytest.LogCaptureFixture
) -> None:
    leader, client = nominate("leader"), open_client(**OBEYS)

    def claim(real: Callable[..., Future[Any]], group: str, *more: object) -> Future[Any]:
        if group == PREFERRED:
            return failed(AuthenticationError("no permission to write kip30.preferred"))
        return real(group, *more)

    wrap(client.backend.membership, "claim", claim)
    one = Standing(client, "one", 5)
    eventually(lambda: "may have no effect: no permission" in caplog.text)
    leader.resign()
    one.expect()
    one.resign()
    one.election.nominate("one", "", priority=5)
    one.expect()
    assert caplog.text.count("may have no effect: no permission") == 1


def test_a_group_that_is_not_answered_means_no_priorities(
    nominate: Nominate, observer: PluginLocator
) -> None:
    patient = {"plugin.session.timeout.ms": 120_000, "plugin.operation.timeout.ms": 60_000}
    leader, low = nominate("leader"), nominate("low", **patient)
    join_stopped(observer, 5)
    asked = answered(low.client, lambda _: Future())
    leader.resign()
    low.expect()
    assert asked.is_set()


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b'{"priority": 9}'])
def test_a_member_of_another_program_has_no_priority(
    nominate: Nominate, observer: PluginLocator, data: bytes
) -> None:
    leader, low = nominate("leader"), nominate("low")
    observer.group_membership(PREFERRED, BYTES).join("foreign", data)
    low.claims.clear()
    leader.resign()
    low.expect()
    assert len(low.claims) == 1


# -- use


@pytest.mark.parametrize("wrong", [-1, 101, True, 1.0, "1"])
def test_another_number_is_refused_before_a_request(open_client: OpenClient, wrong: Any) -> None:
    client = open_client(**OBEYS)
    faults(client).fail("*", times=None)
    election = client.leader_election("s")
    with pytest.raises(UsageError, match="whole number from 0 to 100"):
        election.nominate("a", "", priority=wrong)
    with (
        pytest.raises(UsageError, match="whole number from 0 to 100"),
        election.lead("a", "", priority=wrong),
    ):
        pass
    assert faults(client).counted() == 0
    assert election.candidates() == {}


@pytest.mark.parametrize("wrong", [-1, 101, "1.0", "high"])
def test_a_setting_that_is_no_priority_is_refused(open_client: OpenClient, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"plugin\.priority"):
        open_client(**{"plugin.priority": wrong})


def test_a_priority_that_would_have_no_effect_is_refused(open_client: OpenClient) -> None:
    election = open_client().leader_election("s")
    with pytest.raises(UsageError, match=r"^priority is 5: without plugin\.operations = true"):
        election.nominate("a", "", priority=5)
    assert election.nominate("a", "", priority=0)
    by_setting = open_client(**{"plugin.priority": 5})
    with pytest.raises(
        UsageError, match=r"^plugin\.priority is 5: without plugin\.operations = true"
    ):
        by_setting.leader_election("t").nominate("a", "")
    with pytest.raises(UsageError, match=r"candidates for 'kip30\.lock/x' have none"):
        open_client(**OBEYS).leader_election("kip30.lock/x").nominate("a", "", priority=5)
    own = open_client(**OBEYS, **{"plugin.priority": 5}).leader_election("kip30.lock/x")
    assert own.nominate("a", "")


def test_a_service_with_the_longest_name_has_priorities(
    open_client: OpenClient, observer: PluginLocator
) -> None:
    service = "s" * MAX_NAME_BYTES
    group = observer.group_membership(preferred_group(service), BYTES)
    leader, low, best = (open_client(**OBEYS).leader_election(service) for _ in range(3))
    leader.nominate("leader", "")
    low.nominate("low", "")
    best.nominate("best", "", priority=1)
    eventually(group.membership_list)
    leader.resign("leader")
    assert best.wait_elected("best", 10)


def test_without_operations_a_candidate_asks_for_nothing_more(
    nominate: Nominate, open_client: OpenClient, observer: PluginLocator
) -> None:
    """Nor does it honour the priorities of others."""
    leader = nominate("leader")
    join_stopped(observer, 5)
    client = open_client()
    targets: list[Target] = []

    def note(real: Callable[..., Any], target: Target, *more: object) -> Any:
        targets.append(target)
        return real(target, *more)

    wrap(client.backend.observe, "snapshot", note)
    wrap(client.backend.observe, "watch", note)
    other = Standing(client, "other", None)
    eventually(lambda: in_line(observer))
    other.claims.clear()
    leader.resign()
    other.expect()
    assert len(other.claims) == 1
    assert all(one.scope in {"s", line_group("s")} for one in targets)
