"""Guarantees of `kip30 run --once-per` on every store: a command that succeeds once per key."""

import signal
from pathlib import Path

import pytest

from kip30 import Fence, FencedError, PluginLocator
from kip30.codecs import BYTES
from kip30.driver import Capability
from kip30.runner.completed_runs import CompletedRun, CompletedRuns
from kip30_conformance.clients.run_processes import SERVICE, Arena, Runner
from kip30_conformance.polling import eventually
from kip30_conformance.suites.run_command import NOTE, RunnerSuite


class OncePerKeyTests(RunnerSuite):
    """With ``--once-per KEY`` the command runs until it has succeeded once, on any machine."""

    @pytest.fixture(autouse=True)
    def _notes_runs(self, client: PluginLocator) -> None:
        """Skip the checks on a store that cannot note a run."""
        if (
            missing := {Capability.FENCING, Capability.COMPARE_AND_SET}
            - client.backend.capabilities
        ):
            pytest.skip(f"declares no {', '.join(sorted(one.value for one in missing))}")

    @pytest.mark.parametrize("runners", [3, pytest.param(10, marks=pytest.mark.heavy)])
    def test_W20_once_per_key(self, arena: Arena, tmp_path: Path, runners: int) -> None:
        """Of many runners with one key one runs the command, and all exit with 0."""
        note = tmp_path / "note"

        def start(key: str) -> Runner:
            return arena.start("sh", "-c", NOTE, str(note), options=(f"--once-per={key}",))

        started = [start("monday") for _ in range(runners)]
        assert [runner.wait() for runner in started] == [0] * runners
        assert len(note.read_text().splitlines()) == 1
        late = start("monday")
        assert late.wait() == 0
        assert "nothing to run: 'monday' was done by" in late.said
        assert len(note.read_text().splitlines()) == 1
        assert start("tuesday").wait() == 0
        assert len(note.read_text().splitlines()) == 2

    def test_W20_waiting_runner_ends(self, arena: Arena, tmp_path: Path) -> None:
        """A runner that waits behind a leader ends as soon as the run has been noted."""
        go = tmp_path / "go"
        script = ("sh", "-c", 'until [ -e "$0" ]; do sleep 0.01; done', str(go))
        first = arena.start(*script, options=("--once-per=k",))
        eventually(lambda: "leading" in first.said, what="the first runner leads")
        second = arena.start(*script, options=("--once-per=k",))
        eventually(lambda: "waiting" in second.said, what="the second runner says that it waits")
        go.touch()
        assert [first.wait(), second.wait()] == [0, 0]
        assert "nothing to run" in second.said

    def test_W21_failed_run_is_repeated(self, arena: Arena, tmp_path: Path) -> None:
        """A command that fails is run by the next runner that waits; its own passes the status."""
        note, go = tmp_path / "note", tmp_path / "go"
        fails = 'until [ -e "$1" ]; do sleep 0.01; done; exit 3'
        first = arena.start("sh", "-c", fails, str(note), str(go), options=("--once-per=k",))
        eventually(lambda: "leading" in first.said, what="the first runner leads")
        second = arena.start("sh", "-c", NOTE, str(note), options=("--once-per=k",))
        eventually(lambda: "waiting" in second.said, what="the second runner says that it waits")
        go.touch()
        assert [first.wait(), second.wait()] == [3, 0]
        assert len(note.read_text().splitlines()) == 1

    def test_W21_interrupted_run_is_repeated(self, arena: Arena, tmp_path: Path) -> None:
        """A command that a signal has ended counts as not done, also if it exits with 0."""
        note, ready = tmp_path / "note", tmp_path / "ready"
        graceful = "trap 'exit 0' TERM; echo >> \"$0\"; while :; do sleep 0.01; done"
        first = arena.start("sh", "-c", graceful, str(ready), options=("--once-per=k",))
        eventually(ready.exists, what="the command can be signalled")
        first.send(signal.SIGTERM)
        assert first.wait() == 0
        assert arena.start("sh", "-c", NOTE, str(note), options=("--once-per=k",)).wait() == 0
        assert len(note.read_text().splitlines()) == 1

    def test_W22_former_leader_notes_nothing(self, client: PluginLocator) -> None:
        """A term that another one has followed cannot note its run."""
        runs = CompletedRuns(client.storage(BYTES), SERVICE)
        election = client.leader_election(SERVICE)
        with election.lead("first", "") as term:
            former = Fence(SERVICE, term.epoch)
            runs.add(CompletedRun("k", "first", term.epoch, 0.0), term)
        with election.lead("second", "") as term:
            with pytest.raises(FencedError):
                runs.add(CompletedRun("late", "first", former.epoch, 0.0), former)
            assert runs.find("late") is None
            assert runs.find("k") == CompletedRun("k", "first", former.epoch, 0.0)
            runs.add(CompletedRun("k", "second", term.epoch, 1.0), term)
            assert runs.find("k") == CompletedRun("k", "first", former.epoch, 0.0)
