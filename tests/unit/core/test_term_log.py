"""The loggers ``kip30.terms`` and ``kip30.sessions``."""

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from kip30 import LeaderElection, Leadership, PluginLocator
from kip30.aio import AsyncPluginLocator
from kip30.driver.clock import ManualClock
from kip30.driver.lease import Lease
from kip30.driver.records import Claim, Entry, Kind, Version
from kip30.recipes import Lock
from kip30.runtime.term_log import TermLog
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.neighbour.base import Spot
from kip30_conformance.neighbour.embedded import EmbeddedNeighbour
from kip30_conformance.polling import eventually

from .conftest import OpenClient
from .loops import properties
from .trouble import faults, has_arrived

pytestmark = pytest.mark.virtual_time

PATIENCE = 10
TAKEN = "the store has another leader, or none"
OF_A = {"kip30_store": "embedded", "kip30_service": "s", "kip30_candidate": "a"}


class Log(NamedTuple):
    """What was logged."""

    caplog: pytest.LogCaptureFixture

    def records(self, logger: str) -> list[logging.LogRecord]:
        return [one for one in self.caplog.records if one.name == logger]

    def fields(self, logger: str = "kip30.terms") -> list[dict[str, Any]]:
        """Return the fields of kip30 in each record of *logger*."""
        return [
            {name: value for name, value in vars(one).items() if name.startswith("kip30_")}
            for one in self.records(logger)
        ]

    def events(self) -> list[tuple[str, str]]:
        return [(one["kip30_event"], one["kip30_reason"]) for one in self.fields()]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Log:
    caplog.set_level(logging.INFO, "kip30")
    return Log(caplog)


class Setting(NamedTuple):
    """A candidate that leads."""

    client: PluginLocator
    election: LeaderElection[str]
    folder: Path

    def expire(self) -> None:
        faults(self.client).expire_session()

    def take_away(self) -> None:
        neighbour = EmbeddedNeighbour(self.folder / "state" / "kip30.db", "kip30")
        neighbour.remove(Spot(Kind.SERVICE, "s"))


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (lambda setting: setting.election.resign("a"), "resigned"),
        (lambda setting: setting.election.close(), "resigned"),
        (lambda setting: setting.client.close(), "closed"),
        (Setting.expire, f"the store ended the session|{TAKEN}"),  # whichever it shows first
        (Setting.take_away, TAKEN),
    ],
    ids=["resigned", "handle closed", "locator closed", "session lost", "taken away"],
)
def test_a_term_is_logged_when_it_begins_and_ends(
    client: PluginLocator,
    tmp_path: Path,
    log: Log,
    end: Callable[[Setting], object],
    reason: str,
) -> None:
    election = client.leader_election("s")
    assert election.nominate("a", "x")
    eventually(log.events)
    begun = {**OF_A, "kip30_epoch": 1}
    assert log.fields() == [{**begun, "kip30_event": "elected", "kip30_reason": ""}]
    end(Setting(client, election, tmp_path))
    eventually(lambda: len(log.events()) > 1)
    given = log.fields()[1]["kip30_reason"]
    assert re.fullmatch(reason, given)
    assert log.fields()[1] == {**begun, "kip30_event": "ended", "kip30_reason": given}
    assert [(one.levelname, one.getMessage()) for one in log.records("kip30.terms")[:2]] == [
        ("INFO", "'a' leads 's', epoch 1"),
        ("INFO", f"'a' no longer leads 's', epoch 1: {given}"),
    ]


def test_each_term_is_logged_once(client: PluginLocator, log: Log) -> None:
    election = client.leader_election("s")
    election.nominate("a", "x")
    faults(client).expire_session()
    eventually(lambda: [event for event, _ in log.events()].count("elected") == 2)
    client.close()
    assert [event for event, _ in log.events()] == ["elected", "ended", "elected", "ended"]
    assert log.events()[-1] == ("ended", "closed")


def test_a_lost_session_and_the_next_one_are_logged(client: PluginLocator, log: Log) -> None:
    client.leader_election("s").nominate("a", "x")
    faults(client).expire_session()
    eventually(lambda: len(log.records("kip30.sessions")) == 2)
    assert log.fields("kip30.sessions") == [
        {
            "kip30_event": "lost",
            "kip30_store": "embedded",
            "kip30_reason": "the store ended the session",
            "kip30_renewal_error": "",
        },
        {"kip30_event": "replaced", "kip30_store": "embedded"},
    ]
    levels = [one.levelname for one in log.records("kip30.sessions")]
    assert levels == ["WARNING", "INFO"]


def test_a_claim_that_arrives_too_late_is_logged(open_client: OpenClient, log: Log) -> None:
    client, other = open_client(), open_client()
    leads, election = other.leader_election("s"), client.leader_election("s")
    leads.nominate("b", "x")
    faults(client).arrive_late("election.claim", 1)
    assert not election.nominate("a", "x")
    eventually(lambda: faults(client).counted() == 1)
    election.resign("a")
    leads.resign("b")
    eventually(has_arrived)
    late = ("returned", "the answer to it was lost")
    eventually(lambda: late in log.events(), within=PATIENCE)
    of_a = [one for one in log.fields() if one["kip30_candidate"] == "a"]
    assert [one["kip30_event"] for one in of_a] == ["returned"]


def test_a_claim_that_is_granted_after_its_resignation_is_logged(
    client: PluginLocator, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    election = client.leader_election("s")
    claim = client.backend.election.claim

    def claim_slowly(*asked: Any) -> Any:
        answer = claim(*asked)
        answer.result()
        resigning.start()
        eventually(lambda: election._campaign.find("a") is None)
        return answer

    resigning = threading.Thread(target=election.resign, args=["a"])
    monkeypatch.setattr(client.backend.election, "claim", claim_slowly)
    assert not election.nominate("a", "x")
    resigning.join()
    assert log.events() == [("returned", "resigned")]


def test_elections_of_kip30_itself_are_logged_for_debugging(
    client: PluginLocator, log: Log
) -> None:
    lock = Lock(client, "l")
    with lock.acquire():
        pass
    assert not log.records("kip30.terms")
    log.caplog.set_level(logging.DEBUG, "kip30.terms")
    with lock.acquire():
        pass
    eventually(lambda: len(log.events()) == 2)
    assert {one["kip30_service"] for one in log.fields()} == {"kip30.lock/l"}
    assert {one.levelno for one in log.records("kip30.terms")} == {logging.DEBUG}


@pytest.fixture
def made() -> Iterator[list[logging.LogRecord]]:
    """Yield the records that are made, all with a field of the program's own."""
    records = list[logging.LogRecord]()
    factory = logging.getLogRecordFactory()

    def make(*given: Any, **more: Any) -> logging.LogRecord:
        record = factory(*given, **more)
        record.service = "the program"
        records.append(record)
        return record

    logging.setLogRecordFactory(make)
    yield records
    logging.setLogRecordFactory(factory)


def test_no_record_is_made_that_is_not_shown(
    client: PluginLocator, log: Log, made: list[logging.LogRecord]
) -> None:
    log.caplog.set_level(logging.WARNING, "kip30")
    election = client.leader_election("s")
    for _ in range(3):
        assert election.nominate("a", "x")
        election.resign("a")
    assert [one for one in made if one.name == "kip30.terms"] == []


def test_fields_of_the_program_s_own_cause_no_error(
    client: PluginLocator, log: Log, made: list[logging.LogRecord]
) -> None:
    election = client.leader_election("s")
    election.nominate("a", "x")
    faults(client).expire_session()
    eventually(lambda: len(log.events()) > 1)
    assert {cast("Any", one).service for one in made if one.name == "kip30.terms"} == {
        "the program"
    }


def test_a_handler_that_blocks_delays_no_election(
    client: PluginLocator, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown, elected = threading.Event(), Recorder[Leadership]()
    monkeypatch.setattr(log.caplog.handler, "handle", lambda _: shown.wait(PATIENCE))
    election = client.leader_election("s")
    began = client.context.clock.now()
    assert election.nominate("a", "x", on_elected=elected)
    assert client.context.clock.now() < began + client.context.operation_timeout_seconds
    assert election.wait_elected("a", PATIENCE) is not None
    elected.expect_count(1)
    assert not shown.is_set()
    shown.set()


def test_an_end_is_logged_after_the_begin(log: Log) -> None:
    lease = Lease(ManualClock(), sent_at=0, timeout_seconds=1, margin_seconds=0)

    class Term:
        service = "s"
        claim = Claim("a", Entry(Version(3, 0), "nonce", b""), lease, 1)
        step_down_reason = ""
        ending_reason = "resigned"

        def is_valid(self) -> bool:
            return False

    terms, term = TermLog("embedded"), Term()
    terms.ended(term)
    assert log.events() == []
    terms.elected(term)
    terms.close()
    assert log.events() == [("elected", ""), ("ended", "resigned")]


@pytest.mark.real_time("an event loop waits in the selector of the system")
def test_the_terms_of_an_event_loop_are_logged(tmp_path: Path, log: Log) -> None:
    async def main() -> None:
        async with AsyncPluginLocator(properties(tmp_path)) as locator:
            election = locator.leader_election("s")
            assert await election.nominate("a", "x")
            await election.resign("a")
            assert await election.nominate("b", "x")

    asyncio.run(main())
    assert [(one["kip30_candidate"], one["kip30_event"]) for one in log.fields()] == [
        ("a", "elected"),
        ("a", "ended"),
        ("b", "elected"),
        ("b", "ended"),
    ]
