"""Directives when operators, stores, clocks and logs do what they should not."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from typing_extensions import override

from kip30 import (
    BYTES,
    AuthenticationError,
    DefiniteError,
    Kip30Error,
    LeaderElection,
    Leadership,
    OutcomeUnknownError,
    PluginLocator,
    UnavailableError,
)
from kip30.config import Properties, Value
from kip30.driver.kit.futures import failed
from kip30.driver.records import Kind, Target, new_nonce
from kip30.operations import (
    pause_service,
    read_directives,
    resume_service,
    step_down_leader,
)
from kip30.runner.service_election import StoreContest
from kip30.runtime.directive_rules import DirectiveRules
from kip30.runtime.directives import (
    NAMESPACE,
    Directives,
    ElectionPause,
    StepDown,
    TermId,
    directives_key,
    encode_directives,
)
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.driver_faults import wrap
from kip30_conformance.polling import eventually, throughout

from .conftest import OpenClient

OBEYS: Mapping[str, Any] = {"plugin.operations": True}
DAY = 1_800_000_000.0


def line(client: PluginLocator) -> list[str]:
    return list(client.group_membership("kip30.candidates/s", BYTES).membership())


def led(
    open_client: OpenClient, **first: Any
) -> tuple[LeaderElection[str], LeaderElection[str], Leadership]:
    """Return the elections of "a", which leads, and of "b", which waits, and the term."""
    clients = open_client(**OBEYS), open_client(**OBEYS)
    one, two = (client.leader_election("s") for client in clients)
    one.nominate("a", "", **first)
    two.nominate("b", "")
    eventually(lambda: len(line(clients[0])) == 1)
    term = one.leadership("a")
    assert term is not None
    return one, two, term


def write(client: PluginLocator, directives: Directives) -> None:
    client.storage(BYTES).set(str(directives_key("s")), encode_directives(directives))


def step_down(**others: Any) -> StepDown:
    made = StepDown("x", "op", DAY, "", 60.0, DAY + 3660, 5, "nonce5", "a", "b", 30.0)
    return made._replace(**others)


# -- what operators are told


def test_a_pause_that_was_written_is_not_reported_as_nothing_changed(
    open_client: OpenClient,
) -> None:
    """`UnavailableError` is documented as "Nothing was changed"."""
    operator, other = open_client(), open_client()

    def snapshot(real: Callable[..., Future[Any]], target: Target) -> Future[Any]:
        if target.kind is Kind.SERVICE:
            return failed(UnavailableError("no answer in time"))
        return real(target)

    wrap(operator.backend.observe, "snapshot", snapshot)
    with suppress(OutcomeUnknownError):
        try:
            pause_service(operator, "s")
        except UnavailableError:
            assert not read_directives(other, "s").is_paused(), "it says that nothing was changed"


def test_ctrl_c_withdraws_a_step_down(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it may be obeyed after the operator has given up, and blocks all others."""
    led(open_client, step_down_seconds=60.0)
    operator = open_client()

    def interrupted(_seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("kip30.operations.directives.time.sleep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step_down_leader(operator, "s")
    assert read_directives(operator, "s").directives.step_down is None


@pytest.mark.parametrize("arrives", ["before", "after"])
def test_ctrl_c_withdraws_a_step_down_whose_write_has_no_answer_yet(
    open_client: OpenClient, arrives: str
) -> None:
    led(open_client, step_down_seconds=60.0)
    operator, other = open_client(), open_client()
    late = list[Callable[[], Future[Any]]]()
    is_first = True

    def interrupted(real: Callable[..., Future[Any]], write: Any) -> Future[Any]:
        nonlocal is_first
        if not is_first:
            return real(write)
        is_first = False
        late.append(partial(real, write))
        if arrives == "before":
            late[0]().result()
        raise KeyboardInterrupt

    wrap(operator.backend.storage, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        step_down_leader(operator, "s")
    if arrives == "after":
        with pytest.raises(DefiniteError):
            late[0]().result()
    assert read_directives(other, "s").directives.step_down is None


def test_a_resume_withdraws_what_a_client_may_still_obey(open_client: OpenClient) -> None:
    """The operator was killed two minutes ago, or has a clock that is two minutes late."""
    operator, client = open_client(), open_client(**OBEYS)
    at = time.time() - 120.0
    absent = {"successor": "nobody", "epoch": 0, "nonce": "", "candidate": ""}
    step = step_down(at=at, seconds=60.0, until=at + 3660.0, **absent)
    write(operator, Directives(1, None, step))
    resume_service(operator, "s")
    assert client.leader_election("s").nominate("a", ""), "it holds back for the successor"


def test_a_resume_leaves_a_step_down_that_has_no_effect(open_client: OpenClient) -> None:
    operator, now = open_client(), time.time()
    for over in (
        step_down(at=now - 3660.0, until=now),
        step_down(at=now, until=now + 3660.0, fulfilled=TermId(6, "nonce6")),
    ):
        write(operator, Directives(1, None, over))
        assert resume_service(operator, "s").directives == Directives(1, None, over)


def test_one_lost_read_does_not_end_the_wait(open_client: OpenClient) -> None:
    """The store is back at once, and the hand-over is carried out."""
    _, second, _ = led(open_client)
    operator = open_client()
    reads = 0

    def snapshot(real: Callable[..., Future[Any]], target: Target) -> Future[Any]:
        nonlocal reads
        if target.kind is Kind.SERVICE:
            reads += 1
            if reads == 2:
                return failed(UnavailableError("no answer in time"))
        return real(target)

    wrap(operator.backend.observe, "snapshot", snapshot)
    with suppress(OutcomeUnknownError):
        assert step_down_leader(operator, "s", successor="b").leader == "b"
        return
    assert second.wait_elected("b", 10)
    assert read_directives(operator, "s").directives.step_down is None, "it blocks other operators"


def test_a_leader_that_has_stepped_down_stands_back_after_the_operator_has_gone(
    open_client: OpenClient,
) -> None:
    """Docs: it claims again only after another candidate has led, or after 30 s."""
    opened: list[PluginLocator] = []

    def kept(**more: Any) -> PluginLocator:
        opened.append(open_client(**more))
        return opened[-1]

    first, _, term = led(kept)
    operator, other = open_client(), opened[1]

    def silent(_real: Callable[..., Future[Any]], *_given: object) -> Future[Any]:
        return failed(UnavailableError("no answer in time"))

    wrap(other.backend.election, "claim", silent)
    after = step_down_leader(operator, "s", wait_seconds=1.5)
    assert not term.is_valid()
    assert after.leader is None
    throughout(
        lambda: first.leadership("a") is None and first.get_leader() is None,
        seconds=5.0,
        what="a stands back",
    )
    assert after.directives.log[-1].action != "step-down: withdrawn"


def test_a_step_down_works_if_the_operators_clock_is_two_minutes_slow(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docs: "nothing else depends on times of day" than the end of a directive."""
    led(open_client)
    slow = SimpleNamespace(
        time=lambda: time.time() - 120, monotonic=time.monotonic, sleep=time.sleep
    )
    monkeypatch.setattr("kip30.operations.directives.time", slow)
    assert step_down_leader(open_client(), "s", wait_seconds=5.0).leader == "b"


# -- a pause that does not hold


def test_a_step_down_under_way_lets_no_candidate_through_a_pause(open_client: OpenClient) -> None:
    """Docs: no term begins that was granted after the pause was acknowledged."""
    clients = [open_client(**OBEYS) for _ in range(2)]
    first, second = (client.leader_election("s") for client in clients)
    first.nominate("a", "")
    elected = Recorder[Leadership]()
    second.nominate("b", "", on_elected=elected)
    eventually(lambda: len(line(clients[0])) == 1)
    one, other = open_client(), open_client()
    paused, cleared = threading.Event(), threading.Event()

    def claim(real: Callable[..., Future[Any]], *given: object) -> Future[Any]:
        if not paused.is_set():
            pause_service(other, "s", reason="maintenance")  # acknowledged before the grant
            paused.set()
        return real(*given)

    def snapshot(real: Callable[..., Future[Any]], target: Target) -> Future[Any]:
        if target.scope == NAMESPACE and paused.is_set():
            cleared.wait(1.2)  # a slow answer, by the operation timeout of 1.5 s
        return real(target)

    wrap(clients[1].backend.election, "claim", claim)
    wrap(clients[1].backend.observe, "snapshot", snapshot)
    step_down_leader(one, "s")
    cleared.set()
    assert read_directives(other, "s").is_paused()
    throughout(lambda: elected.events == [], seconds=1.5, what="b does not lead under the pause")


def test_only_the_term_that_has_fulfilled_a_step_down_passes_a_pause() -> None:
    rules = DirectiveRules()
    pause = ElectionPause("op", DAY, "", None)
    rules.note(Directives(pause=pause, step_down=step_down(fulfilled=TermId(6, "n6"))), None, 100.0)
    assert rules.veto("another", 100.0, DAY, TermId(7, "n7"))
    assert rules.veto("b", 100.0, DAY, TermId(7, "n6"))
    assert not rules.veto("b", 100.0, DAY, TermId(6, "n6"))


def test_a_pause_that_was_copied_with_a_fulfilled_hand_over_holds(open_client: OpenClient) -> None:
    """Docs: a step-down names a term by epoch and nonce, "also if the record was copied"."""
    operator = open_client()
    pause = ElectionPause("op", DAY, "", None)
    elsewhere = step_down(epoch=0, nonce=new_nonce(), fulfilled=TermId(1, new_nonce()))
    write(operator, Directives(2, pause, elsewhere))
    candidate, elected = open_client(**OBEYS), Recorder[Leadership]()
    wrap(candidate.backend.observe, "watch", _late)
    candidate.leader_election("s").nominate("z", "", on_elected=elected)
    throughout(lambda: elected.events == [], seconds=1.5, what="z does not lead under the pause")


def _late(real: Callable[..., Any], target: Target, take: Callable[[Any], object]) -> Any:
    """Watch, but deliver the directives a moment later, so that the first claim is sent."""
    if target.scope != NAMESPACE:
        return real(target, take)

    def later(state: Any) -> None:
        threading.Timer(0.5, take, [state]).start()

    return real(target, later)


# -- a service that no one leads


def test_a_candidate_that_may_not_read_directives_does_not_block_the_service(
    open_client: OpenClient,
) -> None:
    """It holds a claim that never becomes a term, and others may read."""
    clients = [open_client(**OBEYS) for _ in range(3)]
    elections = [client.leader_election("s") for client in clients]
    for name, election in zip("abc", elections, strict=True):
        election.nominate(name, "")
        eventually(lambda: elections[0].leadership("a"))
        if name != "a":
            count = "abc".index(name)
            eventually(lambda: len(line(clients[0])) == count)  # noqa: B023

    def refused(real: Callable[..., Future[Any]], target: Target) -> Future[Any]:
        if target.scope == NAMESPACE:
            return failed(AuthenticationError("no permission to read kip30.directives"))
        return real(target)

    wrap(clients[1].backend.observe, "snapshot", refused)
    elections[0].resign("a")
    eventually(lambda: elections[2].leadership("c"), within=8, what="c, which may read, leads")


@pytest.fixture
def clock_of_candidates(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    ahead = [0.0]
    fake = SimpleNamespace(time=lambda: time.time() + ahead[0])
    monkeypatch.setattr("kip30.runtime.directive_watch.time", fake)

    def put(seconds: float) -> None:
        ahead[0] = seconds

    return put


@pytest.mark.medium
def test_a_pause_ends_by_a_clock_that_is_corrected(
    open_client: OpenClient, clock_of_candidates: Callable[[float], None]
) -> None:
    """Docs: it ends by itself, by the clock of each machine. That one was an hour slow at boot."""
    operator, candidate = open_client(), open_client(**OBEYS)
    clock_of_candidates(-3600.0)
    pause_service(operator, "s", seconds=5.0)
    election = candidate.leader_election("s")
    election.nominate("a", "")
    throughout(lambda: election.leadership("a") is None, seconds=6.0)
    clock_of_candidates(0.0)
    eventually(lambda: election.leadership("a"), within=15, what="a leads after the pause")


# -- two at work


def test_a_runner_that_steps_down_is_followed_only_after_it_has_let_go(
    open_client: OpenClient, tmp_path: Any
) -> None:
    """Its command may be in a state in which it cannot be killed in grace and 5 s."""
    settings = {
        "plugin.backend": "embedded",
        "plugin.embedded.directory": str(tmp_path / "state"),
        "plugin.session.timeout.ms": "20000",
    }
    properties = Properties({key: Value(one, "test") for key, one in settings.items()})
    with StoreContest(properties, "s", "a") as contest:
        term = eventually(lambda: contest.wait(1.0))
        other = open_client(**OBEYS)
        election = other.leader_election("s")
        election.nominate("b", "")
        eventually(lambda: len(line(other)) == 1)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(_quietly, lambda: step_down_leader(open_client(), "s"))
            assert term.step_down_requested.wait(10)
            # The runner has not resigned: the processes of its command have not ended.
            throughout(lambda: election.leadership("b") is None, seconds=6.0, what="b waits")
            contest.resign()
            asked.result(60)


def _quietly(call: Callable[[], object]) -> None:
    with suppress(Kip30Error):
        call()


# -- logs and costs


def test_an_operators_name_breaks_no_line_of_the_log(
    open_client: OpenClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "kip30.terms")
    client = open_client(**OBEYS)
    election = client.leader_election("s")
    election.nominate("a", "")
    term = election.leadership("a")
    assert term is not None
    hostile = "x\n2026-01-01 ERROR \x1b[31mthe store is gone\udcff"
    asked = step_down(
        by=hostile,
        until=time.time() + 60,
        epoch=term.epoch,
        nonce=term.claim.entry.nonce,
        successor=None,
    )
    write(client, Directives(1, None, asked))
    eventually(lambda: not term.is_valid())
    eventually(lambda: any("no longer leads" in one.getMessage() for one in caplog.records))
    shown = "".join(one.getMessage() for one in caplog.records)
    assert not {"\n", "\x1b"} & {*shown}


def test_a_log_that_blocks_does_not_delay_the_end_of_a_term(open_client: OpenClient) -> None:
    """`TermLog`: callers have done all that others wait for."""
    _, _, term = led(open_client)
    gate = threading.Event()

    class Blocking(logging.Handler):
        @override
        def emit(self, record: logging.LogRecord) -> None:
            if vars(record).get("kip30_event") == "step_down_requested":
                gate.wait(30)

    handler, log = Blocking(), logging.getLogger("kip30.terms")
    log.addHandler(handler)
    before = log.level
    log.setLevel(logging.INFO)
    try:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(_quietly, lambda: step_down_leader(open_client(), "s"))
            try:
                assert term.step_down_requested.wait(10)
                assert term.lost.wait(2.0), "the term has no time to step down, and does not end"
            finally:
                gate.set()
            asked.result(60)
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


def test_a_record_that_is_no_record_of_kip30_is_reported(
    open_client: OpenClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Docs: of a record that cannot be read, candidates log the first at WARNING."""
    client = open_client(**OBEYS)
    caplog.set_level(logging.WARNING)

    def snapshot(real: Callable[..., Future[Any]], target: Target) -> Future[Any]:
        if target.scope != NAMESPACE:
            return real(target)
        state: Future[Any] = Future()
        found = real(target).result(5)
        state.set_result(found._replace(entries={}, unreadable={"s": "another program wrote it"}))
        return state

    wrap(client.backend.observe, "snapshot", snapshot)
    client.leader_election("s").nominate("a", "")
    eventually(lambda: "another program wrote it" in caplog.text)


def test_few_candidates_watch_a_service_that_is_paused(open_client: OpenClient) -> None:
    """At rest: the line is there so that three candidates watch the service, not all."""
    clients = [open_client(**OBEYS) for _ in range(7)]
    elections = [client.leader_election("s") for client in clients]
    for count, election in enumerate(elections):
        election.nominate(f"c{count}", "")
        eventually(lambda: len(line(clients[0])) == count)  # noqa: B023
    pause_service(open_client(), "s")
    elections[0].resign("c0")

    def watching() -> int:
        target = Target(Kind.SERVICE, "s")
        feeds = [vars(vars(one)["_store"].subscriptions)["_feeds"] for one in clients[1:]]
        return sum(target in one for one in feeds)

    eventually(lambda: watching() <= 4, what="those near the head alone")
    throughout(lambda: watching() <= 4, seconds=5.0, what="those near the head alone")
