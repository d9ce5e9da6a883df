"""Guarantees of `kip30 run` on every store: a command on one machine, never on two."""

import ast
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from kip30 import LeaderChange, PluginLocator
from kip30.config import Written
from kip30_conformance.clients.callback_recorder import Recorder
from kip30_conformance.clients.default_signals import heeded
from kip30_conformance.clients.run_processes import SERVICE, TREE, Arena
from kip30_conformance.clients.ticker import POLITE_STATUS
from kip30_conformance.harness import Harness
from kip30_conformance.polling import eventually, time_scale
from kip30_conformance.suite import Freeze, Suite

NOT_ELECTED = 6
"""Exit status of ``kip30 run --wait`` when the time to wait has passed."""

_LONG_SESSION_SECONDS = 20.0
_LONG_SESSION = {"plugin.session.timeout.ms": round(_LONG_SESSION_SECONDS * 1000)}
_GRACE_SECONDS = 0.5
_IMPATIENT = ("--set=plugin.connect.timeout.ms=300",)
_DESCRIPTORS = 1100
_CROWDED = f"""
import os, resource, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
null = os.open(os.devnull, os.O_RDONLY)
for number in {{*range(3, {_DESCRIPTORS})}} - {{*map(int, sys.argv[1].split(","))}}:
    os.dup2(null, number)
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Opens many descriptors, but for those of its first argument, and executes the others."""
NOTE = 'echo "$KIP30_SERVICE $KIP30_CANDIDATE $KIP30_EPOCH" >> "$0"'
"""A shell command that adds a line with service, candidate and epoch to the file ``$0``."""


class RunnerSuite(Suite):
    """Base of the suites of `kip30 run`."""

    @pytest.fixture
    def arena(
        self, harness: Harness, root: str, timeouts: Mapping[str, Written], tmp_path: Path
    ) -> Iterator[Arena]:
        """Yield a place for runners of the check's own service; they end with the check."""
        arena = Arena(tmp_path, harness.properties(root, **timeouts))
        with heeded():
            yield arena
        arena.close()


class RunnerTests(RunnerSuite):
    """The command runs while its runner leads, and is ended with the term in any case."""

    def test_W01_environment(self, arena: Arena, tmp_path: Path, client: PluginLocator) -> None:
        """The command finds service, candidate and epoch in its environment."""
        note, go = tmp_path / "note", tmp_path / "go"
        script = f'{NOTE}; until [ -e "$1" ]; do sleep 0.01; done'
        runner = arena.start("sh", "-c", script, str(note), str(go))
        eventually(note.exists, what="the command has written its note")
        leader = client.leader_election(SERVICE).get_leader()
        assert leader is not None
        go.touch()
        assert runner.wait() == 0
        assert note.read_text().split() == [SERVICE, leader.id, str(leader.epoch)]

    @pytest.mark.parametrize(
        ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 128 + 9)]
    )
    def test_W01_status(self, arena: Arena, script: str, status: int) -> None:
        """The command's exit status is passed on, 128 + n if signal n ended it."""
        assert arena.start("sh", "-c", script).wait() == status

    @pytest.mark.parametrize(("command", "status"), [("/nowhere/to/be/found", 127), ("/", 126)])
    def test_W01_not_executable(
        self, arena: Arena, client: PluginLocator, command: str, status: int
    ) -> None:
        """A command that cannot run ends the runner with a shell's status, before it ever leads."""
        changes = Recorder[LeaderChange[str]]()
        client.leader_election(SERVICE).add_listener(changes)
        assert arena.start(command).wait() == status
        assert changes.events == []

    def test_W02_run_waits(self, arena: Arena) -> None:
        """A second command starts only after the first one and its descendants have ended."""
        first = arena.start(*arena.ticker("tree"))
        epoch = arena.await_term(processes=TREE)[0].epoch
        second = arena.start(*arena.ticker("tree"))
        eventually(lambda: "waiting" in second.said, what="the second runner says that it waits")
        first.send(signal.SIGTERM)
        arena.await_term(epoch)
        arena.expect_no_overlap()

    def test_W02_clean_end_hands_over(self, harness: Harness, root: str, tmp_path: Path) -> None:
        """After a clean end the next command does not wait for any session to run out."""
        properties = harness.properties(root, **_LONG_SESSION)
        with closing(Arena(tmp_path, properties)) as arena:
            first = arena.start(*arena.ticker())
            epoch = arena.await_term()[0].epoch
            second = arena.start(*arena.ticker())
            eventually(
                lambda: "waiting" in second.said, what="the second runner says that it waits"
            )
            first.send(signal.SIGTERM)
            pause = arena.await_term(epoch)[0].at - max(arena.term(epoch)).at
            assert pause < _LONG_SESSION_SECONDS / 2

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_W07_signal_passes(self, arena: Arena, number: signal.Signals) -> None:
        """The signal reaches the command, which may end in its own way; the next one follows."""
        runner = arena.start(*arena.ticker("polite"))
        epoch = arena.await_term()[0].epoch
        arena.start(*arena.ticker())
        runner.send(number)
        assert runner.wait() == POLITE_STATUS
        assert number.name in [tick.what for tick in arena.term(epoch)]
        arena.await_term(epoch)
        arena.expect_no_overlap()

    def test_W07_signal_while_waiting(self, arena: Arena) -> None:
        """A runner that only waits ends at once with 128 + n, and its command never runs."""
        arena.start(*arena.ticker())
        epoch = arena.await_term()[0].epoch
        waiting = arena.start(*arena.ticker())
        eventually(lambda: "waiting" in waiting.said, what="the runner says that it waits")
        waiting.send(signal.SIGTERM)
        assert waiting.wait() == 128 + signal.SIGTERM
        assert {tick.epoch for tick in arena.ticks()} == {epoch}

    def test_W08_stubborn_cmd(self, arena: Arena) -> None:
        """A command that ignores the signal is killed after the grace; only then the next runs."""
        grace = _GRACE_SECONDS * time_scale()  # long enough for a tick on a busy machine
        runner = arena.start(*arena.ticker("stubborn"), options=(f"--grace={grace}",))
        epoch = arena.await_term()[0].epoch
        arena.start(*arena.ticker())
        runner.send(signal.SIGTERM)
        assert runner.wait() == 128 + signal.SIGKILL
        told_at = next(tick.at for tick in arena.term(epoch) if tick.what == "SIGTERM")
        assert max(arena.term(epoch)).at > told_at + grace / 2
        arena.await_term(epoch)
        arena.expect_no_overlap()

    def test_W09_daemonising_cmd(self, arena: Arena, tmp_path: Path) -> None:
        """Processes that a command left behind, in any group or session, end with the term."""
        go = tmp_path / "go"
        script = '"$@" & until [ -e "$0" ]; do sleep 0.01; done'
        runner = arena.start("sh", "-c", script, str(go), *arena.ticker("tree"))
        epoch = arena.await_term(processes=TREE)[0].epoch
        arena.start(*arena.ticker())
        go.touch()
        assert runner.wait() == 0
        arena.await_term(epoch)
        arena.expect_no_overlap()

    def test_W10_store_down_at_start(self, arena: Arena, freeze: Freeze) -> None:
        """A runner that cannot reach the store says so, retries, and leads once it can."""
        with freeze():
            runner = arena.start(*arena.ticker(), options=_IMPATIENT)
            eventually(
                lambda: "waiting for the store" in runner.said,
                what="the runner says that it waits for the store",
            )
        arena.await_term()

    def test_W10_waiting_is_bounded(self, arena: Arena, freeze: Freeze) -> None:
        """With --wait a runner gives up in time, with an exit status of its own."""
        with freeze():
            runner = arena.start("true", options=("--wait=1", *_IMPATIENT))
            assert runner.wait() == NOT_ELECTED

    def test_W10_wait_for_another(self, arena: Arena) -> None:
        """--wait also bounds the waiting for another leader, and leaves no candidacy behind."""
        first = arena.start(*arena.ticker())
        epoch = arena.await_term()[0].epoch
        assert arena.start(*arena.ticker(), options=("--wait=0.3",)).wait() == NOT_ELECTED
        first.end()
        assert {tick.epoch for tick in arena.ticks()} == {epoch}

    @pytest.mark.parametrize("rounds", [8, pytest.param(50, marks=pytest.mark.heavy)])
    def test_W11_epochs_rise(self, arena: Arena, tmp_path: Path, rounds: int) -> None:
        """Every command sees a greater epoch than all before it."""
        note = tmp_path / "note"
        runners = [arena.start("sh", "-c", NOTE, str(note)) for _ in range(rounds)]
        assert [runner.wait() for runner in runners] == [0] * rounds
        epochs = [int(line.split()[-1]) for line in note.read_text().splitlines()]
        assert len(epochs) == rounds
        assert epochs == sorted(set(epochs))

    def test_W14_grace_of_descendants(self, arena: Arena) -> None:
        """When the first process ends at a signal, its descendants keep the rest of the grace."""
        runner = arena.start("sh", "-c", '"$0" "$@" & wait', *arena.ticker("slow", "tree"))
        term = arena.await_term(processes=TREE)
        arena.start(*arena.ticker())
        runner.send(signal.SIGTERM)
        assert runner.wait() == 128 + signal.SIGTERM
        assert arena.noted("clean") == {tick.pid for tick in term}
        arena.await_term(term[0].epoch)
        arena.expect_no_overlap()

    def test_W15_grace_after_the_end(self, arena: Arena, tmp_path: Path) -> None:
        """Processes that a command leaves behind when it ends get SIGTERM and the grace."""
        go = tmp_path / "go"
        script = '"$@" & until [ -e "$0" ]; do sleep 0.01; done; exit 5'
        runner = arena.start("sh", "-c", script, str(go), *arena.ticker("slow", "tree"))
        term = arena.await_term(processes=TREE)
        arena.start(*arena.ticker())
        go.touch()
        assert runner.wait() == 5
        assert arena.noted("clean") == arena.noted("SIGTERM") == {tick.pid for tick in term}
        arena.await_term(term[0].epoch)
        arena.expect_no_overlap()

    def test_W16_second_hangup(self, arena: Arena) -> None:
        """A closed terminal sends SIGHUP twice; the second one takes no grace away."""
        runner = arena.start(*arena.ticker("slow"))
        arena.await_term()
        runner.send(signal.SIGHUP)
        eventually(lambda: arena.noted("SIGHUP"), what="the command notes the signal")
        runner.send(signal.SIGHUP)
        assert runner.wait() == POLITE_STATUS
        assert arena.noted("clean")

    def test_W18_many_descriptors(self, arena: Arena) -> None:
        """A runner that starts with 1,100 descriptors, more than `select` takes, works as usual."""
        kept = ",".join(map(str, arena.own_descriptors))
        through = (sys.executable, "-c", _CROWDED, kept)
        runner = arena.start("sh", "-c", "exit 7", through=through)
        assert runner.wait() == 7

    def test_W19_inherited_descriptors(self, arena: Arena) -> None:
        """A descriptor that the runner was started with reaches the command, no other one does."""
        reading, writing = os.pipe()
        shown = (
            f"import os; os.write({writing}, ascii(sorted(os.listdir('/proc/self/fd'))).encode())"
        )
        runner = arena.start(sys.executable, "-I", "-S", "-c", shown, descriptors=(writing,))
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            seen = set(ast.literal_eval(pipe.read().decode()))
        assert runner.wait() == 0
        own = {str(number) for number in (*arena.own_descriptors, writing)}
        assert seen >= own
        assert len(seen - own) == 1  # the folder that is read
