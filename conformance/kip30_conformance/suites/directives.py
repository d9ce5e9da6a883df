"""Guarantees of every store for directives, priorities and past terms: O01 to O26."""

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from kip30 import (
    BYTES,
    DirectiveNotObeyedError,
    DirectiveRefusedError,
    LeaderElection,
    Leadership,
    PluginLocator,
    StoreError,
    UnavailableError,
    UsageError,
)
from kip30.driver import Capability
from kip30.driver.clock import SystemClock
from kip30.driver.kit.futures import failed
from kip30.driver.records import Kind, Target, Write, new_nonce
from kip30.operations import (
    HOLD_SECONDS,
    began_at,
    pause_service,
    read_directives,
    read_past_terms,
    resume_service,
    step_down_leader,
)
from kip30.runtime.candidate_line import encode_place, preferred_group
from kip30.runtime.directives import (
    NAMESPACE,
    Directives,
    StepDown,
    TermId,
    directives_key,
    encode_directives,
)
from kip30.runtime.past_terms import KEPT, PastTerm, past_terms_key
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.run_processes import SERVICE, Arena
from kip30_conformance.driver_faults import wrap
from kip30_conformance.polling import eventually, throughout, time_scale
from kip30_conformance.suite import OpenClient, Suite
from kip30_conformance.suites.election import A_MOMENT, term_of
from kip30_conformance.suites.run_command import RunnerSuite
from kip30_conformance.suites.vacancies import wait_in_line

_SECONDS = 60
_OPERATORS = 4
_WRITES = 6
OBEYS: Mapping[str, Any] = {"plugin.operations": True}
_MARGIN = 0.3
"""The lease margin of a check, as a part of the session timeout."""
_MILLISECOND = 0.001

OpenObeying = Callable[[], PluginLocator]


class DirectivesSuite(Suite):
    """Base of the suites of directives."""

    @pytest.fixture(autouse=True)
    def _compares(self, client: PluginLocator) -> None:
        """Skip the checks on a store that cannot have directives."""
        if Capability.COMPARE_AND_SET not in client.backend.capabilities:
            pytest.skip(f"declares no {Capability.COMPARE_AND_SET.value}")

    @pytest.fixture
    def obeying(self, open_client: OpenClient) -> OpenObeying:
        """Return a factory of clients whose candidates obey directives."""
        return lambda: open_client(**OBEYS)


class DirectiveTests(DirectivesSuite):
    """Candidates obey the directives of operators, and never two lead."""

    def test_O01_look_after_winning(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A pause written before the answer to a claim arrives keeps the program from leading."""
        candidate, elected = obeying(), Recorder[Leadership]()
        claims: list[object] = []

        def claim(real: Callable[..., Future[Any]], *arguments: object) -> Future[Any]:
            granted = real(*arguments)
            granted.result(_SECONDS * time_scale())
            if not claims:
                pause_service(client, "s")
            claims.append(granted)
            return granted

        wrap(candidate.backend.election, "claim", claim)
        election = candidate.leader_election("s")
        assert not election.nominate("a", "", on_elected=elected)
        eventually(lambda: client.leader_election("s").get_leader() is None, what="given back")
        assert len(claims) == 1
        assert elected.events == []
        resume_service(client, "s")
        elected.expect_count(1)

    def test_O02_pause_holds(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """No candidate is elected while the service is paused, and one is when it is resumed."""
        first, second = obeying().leader_election("s"), obeying().leader_election("s")
        first.nominate("a", "")
        second.nominate("b", "")
        wait_in_line(client, "s", 1)
        described = pause_service(client, "s", reason="maintenance")
        assert (described.leader, described.is_paused()) == ("a", True)
        term = term_of(first, "a")
        first.resign("a")
        assert not first.nominate("a", "")
        throughout(lambda: not _leads(first, second), seconds=A_MOMENT, what="no one leads")
        resume_service(client, "s")
        leader = eventually(lambda: _leads(first, second), what="one leads again")
        assert leader[0].epoch > term.epoch

    def test_O03_pause_ends(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A pause ends by itself after its time, and all candidates notice it."""
        pause_service(client, "s", seconds=A_MOMENT)
        election = obeying().leader_election("s")
        election.nominate("a", "")
        assert election.wait_elected("a", _SECONDS * time_scale())
        assert not read_directives(client, "s").is_paused()

    def test_O04_pause_keeps_leader(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A leader leads on under a pause."""
        election = obeying().leader_election("s")
        election.nominate("a", "")
        term = term_of(election, "a")
        pause_service(client, "s")
        throughout(term.is_valid, seconds=A_MOMENT, what="the term stays valid")

    def test_O05_block_left_first(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A leader that steps down is followed once the block of its lead has been left."""
        first, second = obeying().leader_election("s"), obeying().leader_election("s")
        has_begun, may_end = threading.Event(), threading.Event()
        terms: list[Leadership] = []

        def lead() -> None:
            with first.lead("a", "") as term:
                terms.append(term)
                has_begun.set()
                may_end.wait(_SECONDS * time_scale())

        with _in_thread(lead):
            assert has_begun.wait(_SECONDS * time_scale())
            second.nominate("b", "")
            wait_in_line(client, "s", 1)
            with _in_thread(lambda: step_down_leader(client, "s", wait_seconds=_SECONDS)):
                assert terms[0].lost.wait(_SECONDS * time_scale())
                assert not terms[0].is_valid()
                throughout(lambda: not _leads(second), seconds=A_MOMENT, what="b waits")
                may_end.set()
                assert second.wait_elected("b", _SECONDS * time_scale())

    def test_O06_margin_kept(self, client: PluginLocator, open_client: OpenClient) -> None:
        """A program that only asks whether it leads has the lease margin before another leads."""
        margin_seconds = _MARGIN * client.context.session_timeout_seconds
        margin: Mapping[str, Any] = {"plugin.lease.margin.ms": round(1000 * margin_seconds)}
        clients = [open_client(**OBEYS, **margin) for _ in range(2)]
        first, second = (one.leader_election("s") for one in clients)
        clock, followed = SystemClock(), list[float]()
        first.nominate("a", "")
        second.nominate("b", "", on_elected=lambda _: followed.append(clock.now()))
        wait_in_line(client, "s", 1)
        term = term_of(first, "a")
        with _in_thread(lambda: step_down_leader(client, "s", wait_seconds=_SECONDS)):
            last_valid = now = clock.now()
            while term.is_valid():
                last_valid, now = now, clock.now()
                time.sleep(0.001)
            eventually(lambda: followed, within=_SECONDS, what="b leads")
        assert followed[0] - last_valid >= margin_seconds - _MILLISECOND

    def test_O07_time_to_step_down(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A program is asked first, and its term is valid until it resigns or its time is over."""
        first, second = obeying().leader_election("s"), obeying().leader_election("s")
        first.nominate("a", "", step_down_seconds=10 * _SECONDS)
        second.nominate("b", "", step_down_seconds=A_MOMENT)
        wait_in_line(client, "s", 1)
        term = term_of(first, "a")
        with _in_thread(lambda: step_down_leader(client, "s", wait_seconds=_SECONDS)):
            assert term.step_down_requested.wait(_SECONDS * time_scale())
            throughout(term.is_valid, seconds=A_MOMENT, what="the term stays valid")
            first.resign("a")
        term = _elected(second, "b")
        first.nominate("a", "")
        wait_in_line(client, "s", 1)
        assert step_down_leader(client, "s", wait_seconds=_SECONDS).leader == "a"
        assert term.step_down_requested.is_set()
        assert "steps down" in term.ending_reason

    @pytest.mark.parametrize("other", ["nonce", "epoch"])
    def test_O08_directive_for_another_term(
        self, client: PluginLocator, obeying: OpenObeying, other: str
    ) -> None:
        """A step-down that names another term, as of a copied record, ends none."""
        election = obeying().leader_election("s")
        election.nominate("a", "")
        term = term_of(election, "a")
        nonce = term.claim.entry.nonce
        copied = _step_down("a", term.epoch, nonce)
        copied = (
            copied._replace(nonce=new_nonce())
            if other == "nonce"
            else copied._replace(epoch=term.epoch - 1)
        )
        _write(client, Directives(number=1, step_down=copied))
        throughout(term.is_valid, seconds=A_MOMENT, what="the term stays valid")
        _write(client, Directives(number=2, step_down=_step_down("a", term.epoch, nonce)))
        assert term.lost.wait(_SECONDS * time_scale())

    def test_O10_stands_back(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A leader that has stepped down leads again only after another one has led."""
        first, second = obeying().leader_election("s"), obeying().leader_election("s")
        first.nominate("a", "")
        second.nominate("b", "")
        wait_in_line(client, "s", 1)
        after = step_down_leader(client, "s")
        step_down = after.directives.step_down
        assert step_down is not None
        assert after.leader == "b"
        entry = _elected(second, "b").claim.entry
        assert step_down.fulfilled == TermId(entry.version.major, entry.nonce)
        second.resign("b")
        assert first.wait_elected("a", _SECONDS * time_scale())

    @pytest.mark.parametrize("number", [5, pytest.param(20, marks=pytest.mark.heavy)])
    def test_O11_hand_over(self, client: PluginLocator, obeying: OpenObeying, number: int) -> None:
        """The named one of many candidates is the next to lead, also the last in the line."""
        elected = Recorder[Leadership]()
        for candidate in range(number):
            obeying().leader_election("s").nominate(str(candidate), "", on_elected=elected)
            elected.expect_count(1)
        wait_in_line(client, "s", number - 1)
        for successor in (str(number - 1), "1", "0"):
            after = step_down_leader(client, "s", successor=successor, wait_seconds=_SECONDS)
            assert after.leader == successor
            wait_in_line(client, "s", number - 1)
        told = [term.candidate for term in elected.expect_count(4)]
        assert told == ["0", str(number - 1), "1", "0"]

    def test_O13_refusals(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A directive that cannot be obeyed is refused, and changes no record."""
        with pytest.raises(DirectiveRefusedError, match="no candidate leads"):
            step_down_leader(client, "s")
        election = obeying().leader_election("s")
        election.nominate("a", "")
        term = term_of(election, "a")
        with pytest.raises(DirectiveRefusedError, match=f"epoch {term.epoch}, not"):
            step_down_leader(client, "s", epoch=term.epoch + 1)
        with pytest.raises(DirectiveRefusedError, match="leads 's' already"):
            step_down_leader(client, "s", successor="a")
        if client.backend.election.forms_line:
            with pytest.raises(DirectiveRefusedError, match="no other candidate waits"):
                step_down_leader(client, "s")
            with pytest.raises(DirectiveRefusedError, match="'b' does not wait"):
                step_down_leader(client, "s", successor="b")
            obeying().leader_election("s").nominate("a", "")
            wait_in_line(client, "s", 1)
            with pytest.raises(DirectiveRefusedError, match="with the id of its leader"):
                step_down_leader(client, "s", wait_seconds=0)
        assert read_directives(client, "s").directives == Directives()
        under_way = _step_down("x", 1, new_nonce())._replace(successor="y")
        _write(client, Directives(number=1, step_down=under_way))
        pause_service(client, "s")
        with pytest.raises(DirectiveRefusedError, match="under way"):
            step_down_leader(client, "s")
        assert term.is_valid()

    def test_O14_under_pause(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A paused service can be handed over, with and without a leader, and stopped."""
        first, second = obeying().leader_election("s"), obeying().leader_election("s")
        first.nominate("a", "")
        second.nominate("b", "")
        wait_in_line(client, "s", 1)
        pause_service(client, "s")
        assert step_down_leader(client, "s", successor="b").leader == "b"
        stopped = step_down_leader(client, "s")
        assert (stopped.leader, stopped.epoch, stopped.is_paused()) == (None, None, True)
        throughout(lambda: not _leads(first, second), seconds=A_MOMENT, what="no one leads")
        wait_in_line(client, "s", 2)
        assert step_down_leader(client, "s", successor="a").leader == "a"
        leader = eventually(lambda: _leads(first, second), what="its program hears of it")
        assert leader[0].candidate == "a"

    def test_O15_many_operators(self, open_client: OpenClient) -> None:
        """Directives of operators at the same moment are all written, one after the other."""

        def direct(operator: PluginLocator) -> None:
            for _ in range(_WRITES):
                pause_service(operator, "s")

        operators = [open_client() for _ in range(_OPERATORS)]
        with ThreadPoolExecutor(_OPERATORS) as pool:
            for done in [pool.submit(direct, one) for one in operators]:
                done.result()
        found = read_directives(operators[0], "s").directives
        assert found.number == _OPERATORS * _WRITES
        numbers = [entry.number for entry in found.log]
        assert numbers == [*range(found.number - len(numbers) + 1, found.number + 1)]

    def test_O16_withdrawn(
        self, client: PluginLocator, open_client: OpenClient, obeying: OpenObeying
    ) -> None:
        """A directive that the leader does not obey is withdrawn, and the error says so."""
        first, second = open_client().leader_election("s"), obeying().leader_election("s")
        first.nominate("a", "")
        second.nominate("b", "")
        wait_in_line(client, "s", 1)
        with pytest.raises(DirectiveNotObeyedError, match="'a' did not step down"):
            step_down_leader(client, "s", wait_seconds=0.5)
        described = read_directives(client, "s")
        assert (described.leader, described.directives.step_down) == ("a", None)
        assert described.directives.log[-1].action == "step-down: withdrawn"
        assert term_of(first, "a").is_valid()

    @pytest.mark.parametrize("data", [b"\xff", b"[]", b'{"format": 2, "pause": {}}', b"x" * 9000])
    def test_O17_unreadable(self, client: PluginLocator, obeying: OpenObeying, data: bytes) -> None:
        """A record that cannot be read has no effect, and an operator is told."""
        client.storage(BYTES).set(_key("s"), data)
        election = obeying().leader_election("s")
        election.nominate("a", "")
        assert election.wait_elected("a", _SECONDS * time_scale())
        with pytest.raises(StoreError, match="cannot be read"):
            pause_service(client, "s")
        assert client.storage(BYTES).fetch(_key("s")).result() == data

    def test_O18_deleted(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A record that is deleted has no effect any longer."""
        pause_service(client, "s")
        election = obeying().leader_election("s")
        assert not election.nominate("a", "")
        client.storage(BYTES).delete(_key("s"))
        assert election.wait_elected("a", _SECONDS * time_scale())

    def test_O19_look_fails(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A candidate that cannot read the directives after its claim is told only when it can."""
        candidate, elected, fails = obeying(), Recorder[Leadership](), threading.Event()
        fails.set()

        def snapshot(real: Callable[..., Future[Any]], target: Target) -> Future[Any]:
            if fails.is_set() and target.scope == NAMESPACE:
                return Future()  # it never answers
            return real(target)

        wrap(candidate.backend.observe, "snapshot", snapshot)
        candidate.leader_election("s").nominate("a", "", on_elected=elected)
        leader = client.leader_election("s").get_leader()
        assert leader is not None
        assert elected.events == []
        fails.clear()
        term = elected.expect_count(1, within=_SECONDS)[0]
        assert term.epoch == leader.epoch

    def test_O21_other_candidates(
        self, client: PluginLocator, open_client: OpenClient, obeying: OpenObeying
    ) -> None:
        """Candidates that do not obey are elected under a pause as ever."""
        pause_service(client, "s")
        obeying().leader_election("s").nominate("a", "")
        other = open_client().leader_election("s")
        other.nominate("b", "")
        assert other.wait_elected("b", _SECONDS * time_scale())

    def test_O22_off_costs_nothing(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A candidate that does not obey, and a lock, read and watch no directives."""
        targets: list[Target] = []

        def note(real: Callable[..., Any], target: Target, *more: object) -> Any:
            targets.append(target)
            return real(target, *more)

        def lead(locator: PluginLocator, service: str) -> list[Target]:
            targets.clear()
            wrap(locator.backend.observe, "watch", note)
            wrap(locator.backend.observe, "snapshot", note)
            with locator.leader_election(service).lead("a", ""):
                return [one for one in targets if one.scope == NAMESPACE]

        key = directives_key("s")
        assert lead(client, "s") == []
        assert lead(obeying(), "kip30.lock/s") == []
        assert lead(obeying(), "é" * 42) == []  # too long for a key
        assert set(lead(obeying(), "s")) == {Target(Kind.VALUE, key.namespace, key.name)}


class PriorityTests(DirectivesSuite):
    """The waiting candidate of the highest priority leads at a vacancy: O23."""

    def test_O23_highest_priority(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """Candidates lead in the order of their priorities, and no other one is notified."""
        elected = Recorder[Leadership]()
        elections = _nominated(client, obeying, elected, {"a": 0, "b": 0, "c": 5, "d": 100})
        for leader in "adc":
            eventually(partial(elections[leader].leadership, leader), what=f"{leader} leads")
            elections[leader].resign(leader)
        assert [term.candidate for term in elected.expect_count(4)] == ["a", "d", "c", "b"]

    def test_O23_equal_priorities(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """Of equal priorities the line decides, where there is one."""
        elected = Recorder[Leadership]()
        elections = _nominated(client, obeying, elected, {"a": 9, "b": 0, "c": 7, "d": 7})
        for number in range(1, 4):
            leader = elected.expect_count(number)[-1].candidate
            elections[leader].resign(leader)
        told = [term.candidate for term in elected.expect_count(4)]
        assert told[0] == "a"
        assert {*told[1:3]} == {"c", "d"}
        if client.backend.election.forms_line:
            assert told[1:3] == ["c", "d"]

    def test_O23_no_leader_is_replaced(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A better candidate waits until the service is vacant, or is handed over to it."""
        elected = Recorder[Leadership]()
        elections = _nominated(client, obeying, elected, {"a": 1, "b": 0, "c": 100})
        term = term_of(elections["a"], "a")
        throughout(term.is_valid, seconds=A_MOMENT, what="the term stays valid")
        assert step_down_leader(client, "s", successor="b", wait_seconds=_SECONDS).leader == "b"
        term = elected.expect_count(2)[-1]
        throughout(term.is_valid, seconds=A_MOMENT, what="the term of the successor, too")
        assert step_down_leader(client, "s", successor="c", wait_seconds=_SECONDS).leader == "c"

    def test_O23_best_steps_down(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """The second best follows, and is not replaced by the best, which waits again."""
        elected = Recorder[Leadership]()
        elections = _nominated(client, obeying, elected, {"a": 9, "b": 0, "c": 5})
        assert step_down_leader(client, "s", wait_seconds=_SECONDS).leader == "c"
        term = elected.expect_count(2)[-1]
        wait_in_line(client, "s", 2)
        throughout(term.is_valid, seconds=A_MOMENT, what="the term stays valid")
        eventually(lambda: len(_preferred(client)) == 1, what="the best waits again")
        elections["c"].resign("c")
        assert elected.expect_count(3)[-1].candidate == "a"

    def test_O23_one_does_not_claim(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """A better candidate that does not claim is passed over, although its session goes on."""
        elected = Recorder[Leadership]()
        elections = _nominated(client, obeying, elected, {"a": 0, "b": 0, "c": 0})
        client.group_membership(preferred_group("s"), BYTES).join("x", encode_place("x", 100))
        elections["a"].resign("a")
        elected.expect_count(2)
        assert _preferred(client) == ["x"]

    @pytest.mark.parametrize("data", [b"\xff", b'{"priority": 100}', b"[100]"])
    def test_O23_unreadable(self, client: PluginLocator, obeying: OpenObeying, data: bytes) -> None:
        """A member without a priority that can be read has none."""
        client.group_membership(preferred_group("s"), BYTES).join("x", data)
        assert obeying().leader_election("s").nominate("a", "")

    def test_O23_off_costs_nothing(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """Without priorities one group is read; a client that does not obey reads nothing."""
        targets: list[tuple[str, Target]] = []

        def lead(locator: PluginLocator, service: str) -> list[tuple[str, Target]]:
            for request in ("watch", "snapshot"):

                def note(
                    real: Callable[..., Any], target: Target, *more: object, request: str = request
                ) -> Any:
                    targets.append((request, target))
                    return real(target, *more)

                wrap(locator.backend.observe, request, note)
            targets.clear()
            with locator.leader_election(service).lead("a", ""):
                return [*targets]

        service, group = Target(Kind.SERVICE, "s"), Target(Kind.GROUP, preferred_group("s"))
        assert lead(client, "s") == [("watch", service)]
        lock = Target(Kind.SERVICE, "kip30.lock/s")
        assert lead(obeying(), lock.scope) == [("watch", lock)]
        obeyed = lead(obeying(), "s")
        assert [one for one in obeyed if one[1].kind is Kind.GROUP] == [("snapshot", group)]
        assert _preferred(client) == []
        with pytest.raises(UsageError, match=r"without plugin\.operations = true"):
            client.leader_election("s").nominate("a", "", priority=1)


class PastTermTests(DirectivesSuite):
    """Leaders note their terms, and nothing waits for that."""

    def test_O25_past_terms(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """Each term is noted with its leader, its beginning, and the reason of its end."""
        first, second = (obeying() for _ in range(2))
        elections = [one.leader_election("s") for one in (first, second)]
        elections[0].nominate("a", "")
        elections[1].nominate("b", "")
        wait_in_line(client, "s", 1)
        step_down_leader(client, "s")
        _elected(elections[1], "b")
        elections[1].resign("b")
        assert elections[0].wait_elected("a", _SECONDS * time_scale())
        first.close()
        terms = eventually(
            lambda: _noted(client, lambda terms: len(terms) == 3 and terms[-1].until is not None)
        )
        assert [one.candidate for one in terms] == ["a", "b", "a"]
        assert "steps down by" in terms[0].ended
        assert [one.ended for one in terms[1:]] == ["resigned", "closed"]
        assert sorted(one.epoch for one in terms) == [one.epoch for one in terms]
        assert all(one.since <= (one.until or 0) for one in terms)

    def test_O25_many_terms(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """The record keeps the last terms; terms of many leaders are all there."""
        elections = [obeying().leader_election("s") for _ in range(3)]
        for number in range(KEPT + 3):
            with elections[number % 3].lead(str(number), "", timeout_seconds=_SECONDS):
                pass
        last = str(KEPT + 2)
        terms = eventually(
            lambda: _noted(client, lambda terms: [one.candidate for one in terms][-1:] == [last])
        )
        assert len(terms) == KEPT

    def test_O25_failing_writes(self, obeying: OpenObeying, client: PluginLocator) -> None:
        """A leader whose notes are not written leads all the same, and ends at once."""
        candidate = obeying()

        def write(real: Callable[..., Future[Any]], one: Write) -> Future[Any]:
            if one.key == past_terms_key("s"):
                return failed(UnavailableError("no answer"))
            return real(one)

        wrap(candidate.backend.storage, "write", write)
        with candidate.leader_election("s").lead("a", "") as term:
            assert term.is_valid()
        candidate.close()
        assert read_past_terms(client, "s") == ()

    def test_O25_unreadable(self, obeying: OpenObeying, client: PluginLocator) -> None:
        """A record that cannot be read is not written, and no election waits for it."""
        client.storage(BYTES).put(str(past_terms_key("s")), b"[]")
        with obeying().leader_election("s").lead("a", ""):
            pass
        with pytest.raises(StoreError, match="terms of 's' cannot be read"):
            read_past_terms(client, "s")

    def test_O26_since(self, client: PluginLocator, obeying: OpenObeying) -> None:
        """It is noted since when the present leader leads."""
        before = time.time()
        with obeying().leader_election("s").lead("a", "") as term:
            since = eventually(lambda: began_at(read_past_terms(client, "s"), term.epoch))
            assert before <= since <= time.time()
        eventually(lambda: began_at(read_past_terms(client, "s"), term.epoch) is None)


class RunnerDirectiveTests(RunnerSuite, DirectivesSuite):
    """`kip30 run` obeys directives: its command ends before another one starts."""

    def test_O65_run_steps_down(self, arena: Arena, client: PluginLocator) -> None:
        """The command and its descendants have ended when the next one starts."""
        first = arena.start(*arena.ticker("tree"), options=("--id=a",))
        epoch = arena.await_term(processes=3)[0].epoch
        second = arena.start(*arena.ticker("tree"), options=("--id=b",))
        eventually(lambda: "waiting" in second.said, what="the second runner says that it waits")
        wait_in_line(client, SERVICE, 1)
        after = step_down_leader(client, SERVICE, wait_seconds=_SECONDS)
        assert after.leader == "b"
        assert arena.await_term(epoch)[0].epoch == after.epoch
        eventually(lambda: "an operator has ended the term" in first.said, what="it says why")
        ended = eventually(lambda: read_past_terms(client, SERVICE)[0].ended)
        assert ended.startswith("it steps down by")
        wait_in_line(client, SERVICE, 1)
        assert step_down_leader(client, SERVICE, successor="a", wait_seconds=_SECONDS).leader == "a"
        arena.await_term(after.epoch or 0)
        arena.expect_no_overlap()

    def test_O65_run_is_paused(self, arena: Arena, client: PluginLocator) -> None:
        """No command starts under a pause, unless a setting says that it is not obeyed."""
        pause_service(client, SERVICE)
        runner = arena.start(*arena.ticker(), options=("--wait=0",))
        assert runner.wait() == 6  # not elected
        arena.start(*arena.ticker(), options=("--set=plugin.operations=false",))
        arena.await_term()


def _nominated(
    client: PluginLocator,
    obeying: OpenObeying,
    elected: Recorder[Leadership],
    priorities: Mapping[str, int],
) -> Mapping[str, LeaderElection[str]]:
    """Return the elections of candidates with *priorities*: the first leads, the others wait."""
    elections = {name: obeying().leader_election("s") for name in priorities}
    for number, (name, election) in enumerate(elections.items()):
        election.nominate(name, "", on_elected=elected, priority=priorities[name])
        elected.expect_count(1)
        wait_in_line(client, "s", number)
    preferred = [priority for priority in [*priorities.values()][1:] if priority]
    eventually(lambda: len(_preferred(client)) == len(preferred), what="the preferred ones wait")
    return elections


def _preferred(client: PluginLocator) -> Sequence[str]:
    """Return the members of the group of preferred candidates."""
    return sorted(client.group_membership(preferred_group("s"), BYTES).membership_list())


def _noted(
    client: PluginLocator, wanted: Callable[[Sequence[PastTerm]], bool]
) -> Sequence[PastTerm] | None:
    terms = read_past_terms(client, "s")
    return terms if wanted(terms) else None


def _elected(election: LeaderElection[str], candidate: str) -> Leadership:
    """Return the term of *candidate*, which an operator may see before its client learns of it."""
    term = election.wait_elected(candidate, _SECONDS * time_scale())
    assert term is not None
    return term


def _leads(*elections: LeaderElection[str]) -> Sequence[Leadership]:
    """Return the present terms of the candidates "a" and "b"."""
    terms = [election.leadership(name) for election in elections for name in ("a", "b")]
    return [term for term in terms if term is not None]


@contextmanager
def _in_thread(function: Callable[[], object]) -> Generator[None]:
    """Call *function* on a thread, which has ended without an error when the block has."""
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(function)
        yield
        done.result(_SECONDS * time_scale())


def _key(service: str) -> str:
    return str(directives_key(service))


def _write(client: PluginLocator, directives: Directives) -> None:
    client.storage(BYTES).set(_key("s"), encode_directives(directives))


def _step_down(candidate: str, epoch: int, nonce: str) -> StepDown:
    now = time.time()
    until = now + _SECONDS
    return StepDown(
        new_nonce(), "op", now, "", _SECONDS, until, epoch, nonce, candidate, None, HOLD_SECONDS
    )
