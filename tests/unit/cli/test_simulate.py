"""``kip30 simulate``: its output, the plan that it writes, and its exit codes."""

from pathlib import Path

import pytest

from kip30.cli._exit_codes import Status
from kip30_conformance.simulation import simulate
from kip30_conformance.simulation.plan import LEADER, RunFault, RunFaultKind, expand, to_json
from kip30_conformance.simulation.schedule import run
from tests.unit.simulation.planted_bugs import planted

from .shell import Shell

pytestmark = pytest.mark.medium

TOY = {
    "plugin.locator.classname": "toystore:ToyBackend",
    "plugin.additional.paths": Path(__file__).parents[2] / "toystore",
}


def test_d20_runs_are_counted(shell: Shell) -> None:
    result = shell("simulate", "--seeds", "3-4")
    assert result.exit_code == Status.OK
    assert result.stdout.startswith("2 runs, 0 broke a promise; ")


def test_d20_one_run_is_made_in_any_case(shell: Shell) -> None:
    result = shell("simulate", "--seeds", "3-4", "--seconds", "0")
    assert result.stdout.startswith("1 run, 0 broke a promise; ")


def test_d20_a_broken_promise_is_repeated_by_its_plan(shell: Shell, tmp_path: Path) -> None:
    plans = tmp_path / "plans"
    simulate.prepare()
    with planted("no margin"):
        # Each change of the core makes other runs of the seeds, of which most find the bug.
        seed = next(seed for seed in range(1, 50) if run(expand(seed)))
        result = shell("simulate", "--seeds", str(seed), "--out", str(plans))
        assert result.exit_code == Status.REFUSED
        assert f"seed {seed}: D01 at " in result.stdout
        plan = f"{plans}/seed-{seed}.json"
        assert f"kip30 simulate --plan {plan} --timeline" in result.stdout
        again = shell("simulate", "--plan", plan, "--timeline")
        assert again.exit_code == Status.REFUSED
        assert "judge   D01: " in again.stdout
    assert shell("simulate", "--plan", plan).exit_code == Status.OK


def test_d20_a_store_of_ones_own_is_run(shell: Shell, tmp_path: Path) -> None:
    shell.write(TOY)
    toy = ("--config", str(shell.properties))
    result = shell("simulate", "--seeds", "2", *toy, "--without", "kill")
    assert result.exit_code == Status.OK
    assert result.stdout.startswith("1 run, 0 broke a promise; ")
    kill = RunFault(RunFaultKind.KILL, at=8.0, seconds=2.0, target=LEADER)
    plan, plans = tmp_path / "plan.json", tmp_path / "plans"
    plan.write_text(to_json(expand(1, fault_seconds=15.0).with_faults([kill])))
    result = shell("simulate", "--plan", str(plan), *toy, "--out", str(plans))
    assert result.exit_code == Status.REFUSED
    assert "it is killed, and another one takes its place" in result.stdout
    assert "--timeline, with the options of the store" in result.stdout
    again = shell("simulate", "--plan", f"{plans}/seed-1.json", "--timeline", *toy)
    assert again.exit_code == Status.REFUSED
    assert "election.claim('service', 'c" in again.stdout


def test_d20_a_store_that_waits_in_the_system_is_refused(shell: Shell) -> None:
    result = shell("simulate", "--backend", "embedded")
    assert result.exit_code == Status.USAGE
    assert "store 'embedded' waits in the system" in result.stderr


def test_d20_faults_of_no_known_kind_are_refused(shell: Shell) -> None:
    result = shell("simulate", "--without", "fire")
    assert result.exit_code == Status.USAGE
    assert "fire: faults are cut_off, unheard, pause" in result.stderr


@pytest.mark.parametrize("seeds", ["", "x", "5-1", "1-", "-1", "1-2-3"])
def test_d20_what_is_no_range_is_refused(shell: Shell, seeds: str) -> None:
    result = shell("simulate", f"--seeds={seeds}")
    assert result.exit_code == Status.USAGE
    assert "write 1-500, or one number" in result.stderr


def test_d20_what_is_no_plan_is_refused(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("{}")
    result = shell("simulate", "--plan", str(file))
    assert result.exit_code == Status.USAGE
    assert "not a plan of a simulation: it has no 'faults'" in result.stderr
