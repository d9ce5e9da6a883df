"""The suite's own tools: a tool that sees nothing proves nothing."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kip30 import ConfigError, DefiniteError, KeyMissingError, PluginLocator
from kip30.driver import Capability
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.crowd import at_once
from kip30_conformance.clients.fork_calls import in_forked_child
from kip30_conformance.evidence import Evidence, NoEvidenceError
from kip30_conformance.polling import eventually, throughout
from kip30_conformance.process_resources import expect_no_more_than, resources_held
from kip30_conformance.suite import needing
from kip30_conformance.unreachable import nowhere


@pytest.fixture
def properties(tmp_path: Path) -> dict[str, str]:
    return {"plugin.backend": "embedded", "plugin.embedded.directory": str(tmp_path / "state")}


@pytest.fixture
def client(properties: dict[str, str]) -> Iterator[PluginLocator]:
    with PluginLocator().startup(properties) as locator:
        yield locator


def test_eventually_returns_the_first_true_answer() -> None:
    answers = iter([0, "", None, "yes"])
    assert eventually(lambda: next(answers)) == "yes"


def test_eventually_gives_up_and_reports_the_last_value() -> None:
    with pytest.raises(AssertionError, match="a miracle: 0"):
        eventually(lambda: 0, within=0.02, what="a miracle")


def test_throughout_notices_one_lapse() -> None:
    answers = iter([True, True, False])
    with pytest.raises(AssertionError, match="did not hold"):
        throughout(lambda: next(answers, True), seconds=1)


def test_a_recorder_waits_for_an_event() -> None:
    told: Recorder[int] = Recorder()
    threading.Timer(0.02, told, [7]).start()
    assert told.expect(lambda event: event == 7) == 7
    with pytest.raises(AssertionError):
        told.expect_count(2, within=0.02)


def test_at_once_returns_errors_of_kip30_and_raises_others() -> None:
    error = KeyMissingError("k")

    def refuse() -> None:
        raise error

    def crash() -> None:
        raise ZeroDivisionError

    assert at_once([refuse, lambda: None]) == [error, None]
    with pytest.raises(ZeroDivisionError):
        at_once([crash])


def test_things_at_once_do_run_together() -> None:
    meeting = threading.Barrier(3)
    assert len(at_once([lambda: meeting.wait(10)] * 3)) == 3


def test_a_leaked_thread_is_seen() -> None:
    before, over = resources_held(), threading.Event()
    thread = threading.Thread(target=over.wait, name="leaked", daemon=True)
    thread.start()
    with pytest.raises(AssertionError, match="thread 'leaked'"):
        expect_no_more_than(before, within=0.02)
    over.set()
    thread.join()
    expect_no_more_than(before)


def test_a_leaked_descriptor_is_seen() -> None:
    before, leaked = resources_held(), os.open(os.devnull, os.O_RDONLY)
    with pytest.raises(AssertionError, match="descriptor"):
        expect_no_more_than(before, within=0.02)
    os.close(leaked)
    expect_no_more_than(before)


def test_a_leaked_process_is_seen() -> None:
    before = resources_held()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(AssertionError, match=f"child {process.pid}"):
            expect_no_more_than(before, within=0.02)
        assert process.stdin is not None
        process.stdin.close()
    expect_no_more_than(before)


def test_evidence_is_kept_and_required() -> None:
    kept: list[tuple[str, object]] = []
    evidence = Evidence(lambda name, value: kept.append((name, value)))
    evidence.saw("dead processes", [12])
    assert kept == [("evidence", "dead processes: [12]")]
    with pytest.raises(NoEvidenceError, match="injected faults: 0"):
        evidence.saw("injected faults", 0)


def test_a_child_answers_with_its_result_or_its_error() -> None:
    assert in_forked_child(lambda: 7) == "7"
    assert in_forked_child(dict[str, str]().popitem) == "KeyError"


def test_nowhere_is_where_no_store_is(properties: dict[str, str]) -> None:
    with nowhere(properties) as unreachable, pytest.raises(DefiniteError):
        PluginLocator().startup(unreachable)


def test_nowhere_of_a_wrong_configuration_is_an_error() -> None:
    with pytest.raises(ConfigError), nowhere({"plugin.backend": "no such store"}):
        pass


def test_a_declared_power_must_work(client: PluginLocator) -> None:
    with needing(client, Capability.LISTING):
        assert list(client.storage().list("n")) == []


def test_an_undeclared_power_must_be_refused(
    client: PluginLocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(client.backend), "capabilities", frozenset[Capability]())
    with needing(client, Capability.LISTING):
        client.storage().list("n")
    with (
        pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"),
        needing(client, Capability.LISTING),
    ):
        pass
