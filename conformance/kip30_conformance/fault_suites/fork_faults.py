"""Forks of a process that uses the store: G14 and G18 to G20.

The forks happen in a program of its own, `fork_main`, whose threads never stop using the store:
they read, write, listen, nominate, open and close. pytest itself would be no place for that.
"""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest

from kip30 import PluginLocator
from kip30.driver import Capability
from kip30_conformance.evidence import Evidence
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import OpenClient, Suite

_ENDS = ("exit at once", "exit", "raise", "process")
_KILLED = ("killed", "exit at once", "killed", "raise")
_ROUND_SECONDS = 4.0
_CONNECT_SECONDS = 10.0
_HEAVY = (pytest.mark.heavy, pytest.mark.timeout(1800))
_8_AND_200_ROUNDS = pytest.mark.parametrize(
    "rounds",
    [pytest.param(8, marks=pytest.mark.timeout(300)), pytest.param(200, marks=_HEAVY)],
)


class Forker:
    """The program that forks."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        """Start it and let it do *request*."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kip30_conformance.clients.fork_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.say(json.dumps(request))

    def say(self, line: str) -> None:
        """Send *line*."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def answer(self, within: float) -> dict[str, Any]:
        """Return its next line; it must not take longer than *within* seconds."""
        stdout = self._process.stdout
        assert stdout is not None
        ready = select.select([stdout], [], [], within * time_scale())[0]
        line = stdout.readline() if ready else b""
        assert line, f"the forking program {'ended' if ready else 'hangs'}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def kill(self) -> None:
        """Kill it with -9 and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """End it in any way that works."""
        self.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()


class ForkTests(Suite):
    """A process may fork at any moment: the child starts its own locator, the parent continues."""

    @pytest.fixture
    def properties(self, harness: Harness, root: str) -> Mapping[str, str]:
        """Return the timeouts of a parent and its children: patient ones."""
        connect = {"plugin.connect.timeout.ms": round(_CONNECT_SECONDS * time_scale() * 1000)}
        every = harness.properties(root, **{**harness.patient, **connect})
        return {key: str(value) for key, value in every.items()}

    def test_G14_forking(self, properties: Mapping[str, str], client: PluginLocator) -> None:
        """A forked child can start a locator of its own if and only if that is declared."""
        _check_children(client, _rounds(properties, 1, ("exit",)))

    @pytest.mark.fault
    @_8_AND_200_ROUNDS
    def test_G18_child_uses_its_own_locator(
        self,
        properties: Mapping[str, str],
        rounds: int,
        client: PluginLocator,
        evidence: Evidence,
    ) -> None:
        """A child forked while threads are busy starts a locator in time and uses all of it.

        If the store does not declare `Capability.FORKING`, the child's startup raises
        `UnsupportedError`.
        """
        seen = _rounds(properties, rounds, _ENDS)
        evidence.saw("children", len(seen["children"]))
        _check_children(client, seen)

    @pytest.mark.fault
    @pytest.mark.timeout(300)
    def test_G19_parent_goes_on(self, properties: Mapping[str, str], evidence: Evidence) -> None:
        """The parent keeps session, leadership and listeners however its children end."""
        seen = _rounds(properties, 8, _KILLED)
        evidence.saw("killed children", sum(one["how"] == "killed" for one in seen["children"]))
        assert (seen["lost"], seen["sessions_lost"], seen["errors"]) == ([], [], [])
        assert seen["epochs"][0] == seen["epochs"][1] is not None
        assert seen["writes"] > 0
        assert seen["heard_last"]

    @pytest.mark.fault
    def test_G19_child_keeps_nothing_from_ending(
        self,
        harness: Harness,
        properties: Mapping[str, str],
        client: PluginLocator,
        evidence: Evidence,
    ) -> None:
        """Everything that the parent closes ends at once, even while a child of it lives."""
        with _standing_by(properties) as (forker, child):
            assert client.group_membership("g").membership_list() == {"parent"}
            forker.say("close")
            assert forker.answer(harness.operation_seconds + 5)["closed"]
            evidence.saw("living child", _is_alive(child))
            _expect_nobody(client, harness.soon)

    @pytest.mark.fault
    def test_G19_child_keeps_no_dead_parent_alive(
        self,
        harness: Harness,
        properties: Mapping[str, str],
        open_client: OpenClient,
        evidence: Evidence,
    ) -> None:
        """A killed parent loses everything in the time it always takes, though a child lives."""
        client = open_client()
        short = {key: str(value) for key, value in harness.timeouts.items()}
        with _standing_by({**properties, **short}) as (forker, child):
            assert client.group_membership("g").membership_list() == {"parent"}
            forker.kill()
            evidence.saw("living child", _is_alive(child))
            _expect_nobody(client, harness.crash_patience)

    @pytest.mark.fault
    @_8_AND_200_ROUNDS
    def test_G20_nothing_lost_nothing_double(
        self,
        properties: Mapping[str, str],
        rounds: int,
        client: PluginLocator,
        evidence: Evidence,
    ) -> None:
        """All that was acknowledged is there afterwards, and no two processes led at once."""
        seen = _rounds(properties, rounds, (*_ENDS, *_KILLED))
        lines = [*seen["parent"], *(line for child in seen["children"] for line in child["lines"])]
        acknowledged = [value for what, value in lines if what == "acknowledged"]
        evidence.saw("acknowledged writes", len(acknowledged))
        found = client.storage().fetch_many(acknowledged).result(60 * time_scale())
        assert [key for key in acknowledged if found.get(key) is None] == []
        terms = sorted((value for what, value in lines if what == "led"), key=lambda term: term[1])
        evidence.saw("terms", len(terms))
        for (epoch, _, last), (later, first, _) in pairwise(terms):
            assert epoch < later, f"epoch {later} after {epoch}"
            assert last <= first, f"epochs {epoch} and {later} led at once"


def _rounds(properties: Mapping[str, str], number: int, ends: Sequence[str]) -> dict[str, Any]:
    forker = Forker({"verb": "rounds", "properties": properties, "number": number, "ends": ends})
    try:
        return forker.answer(30 + number * _ROUND_SECONDS)
    finally:
        forker.end()


def _check_children(client: PluginLocator, seen: Mapping[str, Any]) -> None:
    """Require that the children behaved as the store of *client* declares."""
    may_fork = Capability.FORKING in client.backend.capabilities
    for child in seen["children"]:
        if may_fork:
            _require_full_use(child)
        else:
            _require_refusal(child)


def _require_full_use(child: Mapping[str, Any]) -> None:
    """Require that *child* finished all its work, and ended."""
    did = [what for what, _ in child["lines"]]
    assert not child["hung"], f"hangs: {child}"
    assert did == ["started", "acknowledged", "listened", "led", "acknowledged", "closed"], child
    assert dict(child["lines"])["started"] <= _CONNECT_SECONDS * time_scale()


def _require_refusal(child: Mapping[str, Any]) -> None:
    """Require that *child* could not start a locator, and ended."""
    assert not child["hung"], f"hangs: {child}"
    [[what, error]] = child["lines"]
    assert what == "error", child
    assert error.startswith("UnsupportedError: "), child


@contextmanager
def _standing_by(properties: Mapping[str, str]) -> Generator[tuple[Forker, int]]:
    """Let a parent lead and be a member while a child of it lives."""
    forker = Forker({"verb": "stand by", "properties": properties})
    child = 0
    try:
        child = forker.answer(30)["child"]
        yield forker, child
    finally:
        forker.end()
        if child:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _expect_nobody(client: PluginLocator, within: float) -> None:
    group, election = client.group_membership("g"), client.leader_election("parent")
    eventually(lambda: not group.membership_list(), within=within, what="the group is empty")
    eventually(lambda: election.get_leader() is None, within=within, what="there is no leader")
