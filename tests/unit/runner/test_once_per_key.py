"""A contest for a command that runs once per key: how a runner learns that it has succeeded."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kip30 import UnavailableError
from kip30.config import load
from kip30.driver.records import Version
from kip30.runner.service_election import OncePerKeyContest
from kip30.storage import Storage
from kip30_conformance.polling import eventually

OpenContest = Callable[[str], OncePerKeyContest]
TURN_SECONDS = 0.05


@pytest.fixture
def open_contest(tmp_path: Path) -> Iterator[OpenContest]:
    properties = load({"plugin.backend": "embedded", "plugin.embedded.directory": tmp_path})
    with ExitStack() as stack:
        yield lambda candidate: stack.enter_context(
            OncePerKeyContest(properties, "s", candidate, "monday")
        )


@pytest.fixture
def leader(open_contest: OpenContest) -> OncePerKeyContest:
    contest = open_contest("first")
    eventually(lambda: contest.wait(TURN_SECONDS))
    return contest


@pytest.fixture
def waiting(open_contest: OpenContest, leader: OncePerKeyContest) -> OncePerKeyContest:
    del leader  # leads already
    contest = open_contest("second")

    def is_nominated() -> bool:
        assert contest.wait(TURN_SECONDS) is None
        return contest.has_tried()

    eventually(is_nominated)
    return contest


def test_one_that_waits_learns_of_the_note_while_another_leads(
    leader: OncePerKeyContest, waiting: OncePerKeyContest
) -> None:
    assert not waiting.finished()
    leader.note_success(lambda: False)
    assert "'monday' was done by first" in eventually(waiting.finished)
    assert waiting.wait(TURN_SECONDS) is None


def test_one_that_has_not_heard_of_the_note_reads_it_once_it_is_elected(
    leader: OncePerKeyContest, waiting: OncePerKeyContest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The listener looks into the record by this name, and reads by another one.
    monkeypatch.setattr("kip30.runner.service_election.run_of", lambda *_: None)
    leader.note_success(lambda: False)
    leader.resign()

    def is_decided() -> bool:
        return waiting.wait(TURN_SECONDS) is not None or bool(waiting.finished())

    eventually(is_decided)
    assert "'monday' was done by first" in waiting.finished()


def test_one_that_comes_later_is_not_nominated(
    leader: OncePerKeyContest, open_contest: OpenContest
) -> None:
    leader.note_success(lambda: False)
    late = open_contest("late")
    eventually(lambda: late.wait(TURN_SECONDS) or late.finished())
    assert "'monday' was done by first" in late.finished()
    leader.resign()
    late.resign()


def test_a_note_is_tried_again_while_the_term_is_valid(
    leader: OncePerKeyContest, waiting: OncePerKeyContest, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts, put = list[str](), Storage.put

    def fails_once(storage: Storage[bytes], key: str, *args: Any, **more: Any) -> Version:
        attempts.append(key)
        if len(attempts) == 1:
            raise UnavailableError("no answer")
        return put(storage, key, *args, **more)

    monkeypatch.setattr(Storage, "put", fails_once)
    leader.note_success(lambda: True)
    assert len(attempts) == 2
    assert "'monday' was done by first" in eventually(waiting.finished)


def test_a_note_is_not_tried_again_once_the_caller_has_no_time(
    leader: OncePerKeyContest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_args: object, **_more: object) -> None:
        raise UnavailableError("no answer")

    monkeypatch.setattr(Storage, "put", fails)
    with pytest.raises(UnavailableError):
        leader.note_success(lambda: False)
